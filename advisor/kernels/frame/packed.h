/* Products with packed weights: a [rows][depth] times panels, register tiles all the way.

   A matrix w [columns][depth], a row an output, lies packed as panels [depth][PANEL]: PANEL outputs side by side, so that
   a tile reads it contiguously; outputs beyond the last are zero. Rows of a are read where they lie. DEPTH elements of
   the sum at a time, so that the slice of a panel stays in the L1 cache while all rows pass over it. */
#ifndef ADVISOR_PACKED_H
#define ADVISOR_PACKED_H

#include "tiling.h"

/* Numbers of a packed matrix. */
INLINE int64_t packed(int64_t columns, int64_t depth) { return panels_of(columns) * PANEL * depth; }

/* Panel p of w. */
static void pack_panel(const real *w, int64_t columns, int64_t depth, int64_t p, real *to) {
    int64_t first = p * PANEL;
    transpose_in(w + first * depth, least(PANEL, columns - first), depth, PANEL, 1, to + first * depth);
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

#endif
