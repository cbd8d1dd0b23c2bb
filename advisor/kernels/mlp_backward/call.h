/* The call of the gradients of a gated MLP. Letters as in gated.py: i a row, d an element of it, f one within. */
#ifndef ADVISOR_MLP_BACKWARD_CALL_H
#define ADVISOR_MLP_BACKWARD_CALL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "sizes.h"

/* buffers: x [rows][d], wg, wu [f][d], wd [d][f], gy [rows][d]; gx [rows][d], gwg, gwu [f][d], gwd [d][f];
   dims: batch, d_model, d_ff, n. */
typedef struct {
    const real *x, *wg, *wu, *wd, *gy;
    real *gx, *gwg, *gwu, *gwd;
    int64_t rows, d, f;
} Call;

static inline Call call_of(void *const *buffers, const int64_t *dims) {
    Call c = {0};
    c.x = (const real *)buffers[0], c.wg = (const real *)buffers[1], c.wu = (const real *)buffers[2];
    c.wd = (const real *)buffers[3], c.gy = (const real *)buffers[4];
    c.gx = (real *)buffers[5], c.gwg = (real *)buffers[6], c.gwu = (real *)buffers[7], c.gwd = (real *)buffers[8];
    c.rows = dims[0] * dims[3], c.d = dims[1], c.f = dims[2];
    return c;
}

static inline int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
