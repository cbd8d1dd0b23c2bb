/* The gated MLP's weights as panels, and its gate on the sums of a tile. */
#ifndef ADVISOR_MLP_PANELS_H
#define ADVISOR_MLP_PANELS_H

#include "packed.h"

#include "call.h"
#include "gate.h"

/* All weights: wg's panels, wu's, wd's. Call it inside a parallel region. */
static void pack_weights(const Call *c, real *to) {
    int64_t within = panels_of(c->f), out = panels_of(c->d);
#pragma omp for schedule(static) nowait
    for (int64_t p = 0; p < within; p++) {
        pack_panel(c->wg, c->f, c->d, p, to);
        pack_panel(c->wu, c->f, c->d, p, to + packed(c->f, c->d));
    }
#pragma omp for schedule(static)
    for (int64_t p = 0; p < out; p++) pack_panel(c->wd, c->d, c->f, p, to + 2 * packed(c->f, c->d));
}

INLINE int64_t all_packed(int64_t d, int64_t f) { return 2 * packed(f, d) + packed(d, f); }

/* Packed weights. */
typedef struct {
    const real *wg, *wu, *wd;
} Weights;

INLINE Weights weights_of(const Call *c, const real *all) {
    return (Weights){all, all + packed(c->f, c->d), all + 2 * packed(c->f, c->d)};
}

/* a [rows][count] becomes silu(a) b, whole vectors. */
static void gate_rows(real *a, const real *b, int64_t row, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < count; k += W)
            store(a + r * row + k, gated(load(a + r * row + k), load(b + r * row + k)));
}

#endif
