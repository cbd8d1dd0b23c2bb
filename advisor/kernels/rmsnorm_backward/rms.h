/* What the variants of RMSNorm's gradients share. Letters as in rms.py: i a row, d an element of a row. */
#ifndef ADVISOR_RMS_BACKWARD_H
#define ADVISOR_RMS_BACKWARD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "advisor.h"

typedef ADV_REAL real;

#define EPS ((real)1e-5) /* added to the mean of squares; rms.py has it too */

/* buffers: x [rows][d], g [d], gy [rows][d], gx [rows][d], gg [d]; dims: batch, d_model, n. */
typedef struct {
    const real *x, *g, *gy;
    real *gx, *gg;
    int64_t rows, d;
} Call;

static inline Call call_of(void *const *buffers, const int64_t *dims) {
    return (Call){(const real *)buffers[0], (const real *)buffers[1], (const real *)buffers[2], (real *)buffers[3],
                  (real *)buffers[4],       dims[0] * dims[2],        dims[1]};
}

/* r of a row, from its sum of squares. */
static inline real scale_of(real squares, int64_t d) {
    real mean = squares / (real)d + EPS;
    return 1 / (sizeof(real) == 8 ? (real)sqrt((double)mean) : (real)sqrtf((float)mean));
}

/* Numbers rounded up to whole cache lines. */
static inline int64_t lines_of(int64_t numbers) {
    int64_t line = 64 / (int64_t)sizeof(real);
    return (numbers + line - 1) / line * line;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
