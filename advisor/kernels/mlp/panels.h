/* Products with packed weights: a [rows][depth] times panels, register tiles all the way.

   A matrix w [columns][depth], a row an output, lies packed as panels [depth][PANEL]: PANEL outputs side by side, so that
   a tile reads it contiguously; outputs beyond the last are zero. Rows of a are read where they lie. DEPTH elements of
   the sum at a time, so that the slice of a panel stays in the L1 cache while all rows pass over it. */
#ifndef ADVISOR_MLP_PANELS_H
#define ADVISOR_MLP_PANELS_H

#include "tile.h"

#include "call.h"
#include "gate.h"

#ifndef ADV_M
#define ADV_M 6 /* rows in one tile */
#endif
#ifndef ADV_N
#define ADV_N 2 /* vectors in one tile */
#endif

#define PANEL (ADV_N * W)
#define DEPTH 256

INLINE int64_t panels_of(int64_t columns) { return (columns + PANEL - 1) / PANEL; }

/* Numbers of a packed matrix. */
INLINE int64_t packed(int64_t columns, int64_t depth) { return panels_of(columns) * PANEL * depth; }

/* Panel p of w. */
static void pack_panel(const real *w, int64_t columns, int64_t depth, int64_t p, real *to) {
    int64_t first = p * PANEL;
    transpose_in(w + first * depth, least(PANEL, columns - first), depth, PANEL, 1, to + first * depth);
}

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

/* c [rows][count * PANEL] (+)= a [rows][depth] times `count` panels; `panel` numbers lie between two panels. */
static void product(const real *a, int64_t a_row, int64_t rows, const real *panels, int64_t panel, int64_t count,
                    int64_t depth, int add, real *c, int64_t c_row) {
    for (int64_t k = 0; k < depth; k += DEPTH) {
        Left left = {a + k, a_row, 1};
        int64_t some = least(DEPTH, depth - k);
        for (int64_t p = 0; p < count; p++) {
            const real *b = panels + p * panel + k * PANEL;
            if (k || add)
                tiles(ADV_M, ADV_N, ADD, rows, left, b, PANEL, some, c + p * PANEL, c_row, 0);
            else
                tiles(ADV_M, ADV_N, ZERO, rows, left, b, PANEL, some, c + p * PANEL, c_row, 0);
        }
    }
}

/* a [rows][count] becomes silu(a) b, whole vectors. */
static void gate_rows(real *a, const real *b, int64_t row, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < count; k += W)
            store(a + r * row + k, gated(load(a + r * row + k), load(b + r * row + k)));
}

/* to [rows][columns] = from, of other row lengths. */
static void copy_rows(const real *from, int64_t from_row, int64_t rows, int64_t columns, real *to, int64_t to_row) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, columns * sizeof(real));
}

#endif
