/* Products of matrices that lie any way round, by register tiles.

   c [rows][count * PANEL] (+)= left [rows][depth] times columns x .. of right [depth][columns], DEPTH of the sum at a
   time. Of the right side one slice [DEPTH][PANEL] after the other is copied into the thread's own room, columns beyond
   the last as zeros; a left side that lies transposed is copied too, once a slice, since a tile would otherwise touch a
   page a step. */
#ifndef ADVISOR_SLICED_H
#define ADVISOR_SLICED_H

#include "tiling.h"

/* right[k][x] = b[k * row + x * step]; row or step is 1. */
typedef struct {
    const real *b;
    int64_t row, step, columns;
} Right;

/* A thread's room: a slice of the right side, and one of a left side of at most `rows` rows. */
INLINE int64_t room_numbers(int64_t rows) { return lines_of(DEPTH * PANEL) + lines_of(DEPTH * rows); }

static void fill_slice(const Right *right, int64_t k, int64_t depth, int64_t x, real *to) {
    int64_t some = least(PANEL, right->columns - x);
    const real *b = right->b + k * right->row + x * right->step;
    if (right->step != 1) {
        for (int64_t c = 0; c < some; c++)
            for (int64_t r = 0; r < depth; r++) to[r * PANEL + c] = b[r * right->row + c * right->step];
    } else {
        for (int64_t r = 0; r < depth; r++) memcpy(to + r * PANEL, b + r * right->row, some * sizeof(real));
    }
    for (int64_t r = 0; some < PANEL && r < depth; r++) memset(to + r * PANEL + some, 0, (PANEL - some) * sizeof(real));
}

/* Elements k .. of the sum of a left side, `depth` of them: as it lies, or copied into `own`. */
static Left left_slice(Left left, int64_t rows, int64_t k, int64_t depth, real *own) {
    const real *a = left.a + k * left.step;
    if (left.row != 1) return (Left){a, left.row, left.step};
    for (int64_t r = 0; r < depth; r++) memcpy(own + r * rows, a + r * left.step, rows * sizeof(real));
    return (Left){own, 1, rows};
}

/* x: the first column, a multiple of PANEL; count: panels. */
static void product(Left left, int64_t rows, Right right, int64_t x, int64_t count, int64_t depth, int add, real *c,
                    int64_t c_row, real *room) {
    real *slice = room, *own = room + lines_of(DEPTH * PANEL);
    for (int64_t k = 0; k < depth; k += DEPTH) {
        int64_t some = least(DEPTH, depth - k);
        Left a = left_slice(left, rows, k, some, own);
        for (int64_t p = 0; p < count; p++) {
            fill_slice(&right, k, some, x + p * PANEL, slice);
            if (k || add)
                tiles(ADV_M, ADV_N, ADD, rows, a, slice, PANEL, some, c + p * PANEL, c_row, 0);
            else
                tiles(ADV_M, ADV_N, ZERO, rows, a, slice, PANEL, some, c + p * PANEL, c_row, 0);
        }
    }
}

#endif
