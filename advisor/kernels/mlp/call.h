/* The call of a gated MLP: its buffers and sizes. Letters as in gated.py: i a row, d an element of it, f one within. */
#ifndef ADVISOR_MLP_CALL_H
#define ADVISOR_MLP_CALL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "sizes.h"

/* buffers: x [rows][d], wg, wu [f][d], wd [d][f], y [rows][d], then what a variant prepared; dims: batch, d_model, d_ff,
   n. */
typedef struct {
    const real *x, *wg, *wu, *wd;
    real *y;
    int64_t rows, d, f;
} Call;

static inline Call call_of(void *const *buffers, const int64_t *dims) {
    return (Call){(const real *)buffers[0], (const real *)buffers[1], (const real *)buffers[2],
                  (const real *)buffers[3], (real *)buffers[4],       dims[0] * dims[3],
                  dims[1],                  dims[2]};
}

#endif
