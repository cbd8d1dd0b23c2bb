/* What the variants of RMSNorm's gradients share. Letters as in rms.py: i a row, d an element of a row. */
#ifndef ADVISOR_RMS_BACKWARD_H
#define ADVISOR_RMS_BACKWARD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "scale.h"
#include "sizes.h"

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

#endif
