/* The register tile under every attention kernel: a small matrix product whose left side is read number by number.

   c[m][x] (+)= sum over k of a[m][k] * b[k][x]      m < M, x < N * W, k < depth

   Each number of a is spread over a vector and meets N vectors of b, so M * N sums stay in registers: M * N + N + 1 of
   them are needed. a is walked by strides, so it may be a matrix or its transpose where it lies; rows of b and c are
   contiguous. M and N are constants at every call. */
#ifndef ADVISOR_TILE_H
#define ADVISOR_TILE_H

#include "real.h"

#define TILE_MOST_M 32
#define TILE_MOST_N 4

/* start: what the sums begin with. SCALED: c times factor [N * W], for sums that an online softmax rescales. */
enum { ZERO, ADD, SCALED };

typedef struct {
    const real *a;
    int64_t row, step; /* a[m][k] = a[m * row + k * step] */
} Left;

INLINE void tile(const int M, const int N, const int start, Left left, const real *b, int64_t b_row, int64_t depth,
                 real *c, int64_t c_row, const real *factor) {
    vec sums[TILE_MOST_M][TILE_MOST_N];
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int x = 0; x < N; x++) {
        sums[m][x] = (vec){0};
        if (start != ZERO) sums[m][x] = load(c + m * c_row + x * W);
        if (start == SCALED) sums[m][x] *= load(factor + x * W);
    }
    const real *a = left.a;
    for (int64_t k = 0; k < depth; k++, a += left.step, b += b_row) {
        vec right[TILE_MOST_N];
        UNROLL for (int x = 0; x < N; x++) right[x] = held(load(b + x * W));
        UNROLL for (int m = 0; m < M; m++) {
            vec one = held(spread(a[m * left.row]));
            UNROLL for (int x = 0; x < N; x++) sums[m][x] += one * right[x];
        }
    }
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int x = 0; x < N; x++) store(c + m * c_row + x * W, sums[m][x]);
}

/* The same for any number of rows: tiles of M, then of 4, then single rows. */
INLINE void tiles(const int M, const int N, const int start, int64_t rows, Left left, const real *b, int64_t b_row,
                  int64_t depth, real *c, int64_t c_row, const real *factor) {
    int64_t m = 0;
    for (; m + M <= rows; m += M) {
        Left here = {left.a + m * left.row, left.row, left.step};
        tile(M, N, start, here, b, b_row, depth, c + m * c_row, c_row, factor);
    }
    for (; M > 4 && m + 4 <= rows; m += 4) {
        Left here = {left.a + m * left.row, left.row, left.step};
        tile(4, N, start, here, b, b_row, depth, c + m * c_row, c_row, factor);
    }
    for (; m < rows; m++) {
        Left here = {left.a + m * left.row, left.row, left.step};
        tile(1, N, start, here, b, b_row, depth, c + m * c_row, c_row, factor);
    }
}

/* to [columns][rows padded to `width`] = from [rows][columns] * factor; the padding is zero. */
INLINE void transpose_in(const real *from, int64_t rows, int64_t columns, int64_t width, real factor, real *to) {
    for (int64_t c = 0; c < columns; c++) {
        int64_t r = 0;
        for (; r < rows; r++) to[c * width + r] = from[r * columns + c] * factor;
        for (; r < width; r++) to[c * width + r] = 0;
    }
}

#endif
