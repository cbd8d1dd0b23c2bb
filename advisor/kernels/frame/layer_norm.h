/* RMSNorm of all rows of a transformer block, in vectors. */
#ifndef ADVISOR_LAYER_NORM_H
#define ADVISOR_LAYER_NORM_H

#include "scale.h"
#include "squares.h"

#include "layer.h"

/* to [rows][d] = x r g. Call it inside a parallel region. */
static void norm_rows(const Layer *l, const real *x, const real *g, real *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++)
        scaled(0, x + i * l->d, g, scale_of(squares_of(x + i * l->d, l->d), l->d), l->d, to + i * l->d);
}

#endif
