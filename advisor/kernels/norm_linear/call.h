/* The call of a norm with its projection. Letters as in spec.py: i a row, d an element of it, o an output. */
#ifndef ADVISOR_NORM_LINEAR_CALL_H
#define ADVISOR_NORM_LINEAR_CALL_H

#include <string.h>

#include "scale.h"
#include "sizes.h"

/* buffers: x [rows][d], g [d], w [o][d], y [rows][o], then what a variant prepared; dims: batch, d_model, d_out, n. */
typedef struct {
    const real *x, *g, *w;
    real *y;
    int64_t rows, d, o;
} Call;

static inline Call call_of(void *const *buffers, const int64_t *dims) {
    return (Call){(const real *)buffers[0], (const real *)buffers[1], (const real *)buffers[2], (real *)buffers[3],
                  dims[0] * dims[3],        dims[1],                  dims[2]};
}

#endif
