/* Products of few rows: every row of weights is read once, where it lies, several side by side. */
#ifndef ADVISOR_DOTS_H
#define ADVISOR_DOTS_H

#include "real.h"
#include "sizes.h"

#ifndef ADV_R
#define ADV_R 4 /* outputs at once: rows of weights read side by side */
#endif

/* Rows of x that meet R rows of weights at once: as many as keep all sums, the R vectors of weights and one of x in
   registers, of which there are 32 with AVX-512 and 16 else. */
#if defined(__AVX512VL__)
#define ROWS (ADV_R == 4 ? 6 : 8)
#else
#define ROWS (ADV_R == 4 ? 2 : ADV_R == 2 ? 6 : 8)
#endif

#define LINE (64 / REAL_BYTES) /* numbers in a cache line */

/* to[m * to_row + r] = x[m] . w[r], for M rows of x and R rows of w, which are asked for `ahead` numbers ahead (0: not):
   hardware stops at the end of a page, and a row of weights may be no longer than one. */
INLINE void dots(const int M, const int R, const real *x, int64_t x_row, const real *w, int64_t depth, int64_t ahead,
                 real *to, int64_t to_row) {
    vec sums[ROWS][ADV_R];
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++) sums[m][r] = (vec){0};
    int64_t k = 0;
    for (; k + LINE <= depth; k += LINE) {
        const real *next = w + k + ahead + (k + ahead < depth ? 0 : (R - 1) * depth); /* or the rows that come next */
        if (ahead) UNROLL for (int r = 0; r < R; r++) __builtin_prefetch(next + r * depth);
        UNROLL for (int v = 0; v < LINE; v += W) {
            vec one[ADV_R];
            UNROLL for (int r = 0; r < R; r++) one[r] = load(w + r * depth + k + v);
            UNROLL for (int m = 0; m < M; m++) {
                vec own = load(x + m * x_row + k + v);
                UNROLL for (int r = 0; r < R; r++) sums[m][r] += own * one[r];
            }
        }
    }
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++) {
        real total = lanes_sum(sums[m][r]);
        for (int64_t rest = k; rest < depth; rest++) total += x[m * x_row + rest] * w[r * depth + rest];
        to[m * to_row + r] = total;
    }
}

/* Where a product reads and writes: rows of x, rows of w, rows of the result. */
typedef struct {
    const real *x;
    int64_t x_row, rows;
    const real *w;
    int64_t depth, ahead;
    real *to;
    int64_t to_row;
} Product;

/* R outputs from r on, for M rows of x at a time from row m on, as long as there are so many. Returns the row after. */
INLINE int64_t dots_by(const int M, const int R, const Product *p, int64_t r, int64_t m) {
    for (; m + M <= p->rows; m += M) {
        int64_t ahead = m ? 0 : p->ahead; /* later rows of x find the weights in a cache */
        dots(M, R, p->x + m * p->x_row, p->x_row, p->w + r * p->depth, p->depth, ahead, p->to + m * p->to_row + r, p->to_row);
    }
    return m;
}

/* R outputs from r on, for all rows of x. */
INLINE void dots_of(const int R, const Product *p, int64_t r) {
    int64_t m = dots_by(ROWS, R, p, r, 0);
    if (ROWS > 4) m = dots_by(4, R, p, r, m);
    if (ROWS > 2) m = dots_by(2, R, p, r, m);
    dots_by(1, R, p, r, m);
}

/* Outputs first .. end - 1. */
static void outputs(Product p, int64_t first, int64_t end) {
    int64_t r = first;
    for (; r + ADV_R <= end; r += ADV_R) dots_of(ADV_R, &p, r);
    for (; r < end; r++) dots_of(1, &p, r);
}

/* Whole cache lines of outputs a thread, so that no two write to one. */
static int64_t border(int64_t count, int64_t thread, int64_t threads) {
    return least(count, lines_of(count) / LINE * thread / threads * LINE);
}

#endif
