/* What the variants of RMSNorm share. Letters as in rms.py: i a row, d an element of a row. */
#ifndef ADVISOR_RMS_H
#define ADVISOR_RMS_H

#include <math.h>
#include <stdint.h>

#include "scale.h"

/* buffers: x [rows][d], g [d], y [rows][d]; dims: batch, d_model, n. */
typedef struct {
    const real *x, *g;
    real *y;
    int64_t rows, d;
} Call;

static inline Call call_of(void *const *buffers, const int64_t *dims) {
    return (Call){(const real *)buffers[0], (const real *)buffers[1], (real *)buffers[2], dims[0] * dims[2], dims[1]};
}

#endif
