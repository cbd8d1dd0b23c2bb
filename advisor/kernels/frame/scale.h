/* The scale of a row in RMSNorm. */
#ifndef ADVISOR_SCALE_H
#define ADVISOR_SCALE_H

#include <math.h>

#include "advisor.h"

typedef ADV_REAL real;

#define EPS ((real)1e-5) /* added to the mean of squares; rms.py has it too */

/* r of a row, from its sum of squares. */
static inline real scale_of(real squares, int64_t d) {
    real mean = squares / (real)d + EPS;
    return 1 / (sizeof(real) == 8 ? (real)sqrt((double)mean) : (real)sqrtf((float)mean));
}

#endif
