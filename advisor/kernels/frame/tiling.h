/* What products by panels share, wherever the right side comes from: the tile's size, the slice of a sum, a panel. */
#ifndef ADVISOR_TILING_H
#define ADVISOR_TILING_H

#include "sizes.h"
#include "tile.h"

#ifndef ADV_M
#define ADV_M 6 /* rows in one tile */
#endif
#ifndef ADV_N
#define ADV_N 2 /* vectors in one tile */
#endif

#define PANEL (ADV_N * W) /* columns side by side, which a tile reads contiguously */
#define DEPTH 256         /* elements of the sum at a time */

INLINE int64_t panels_of(int64_t columns) { return (columns + PANEL - 1) / PANEL; }

/* to [rows][columns] = from, of other row lengths. */
static void copy_rows(const real *from, int64_t from_row, int64_t rows, int64_t columns, real *to, int64_t to_row) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, columns * sizeof(real));
}

#endif
