/* variant {
  "idea": "few rows, down to a single token: every weight is read once, where it lies, and the threads share the outputs",
  "language": "c", "symbol": "mlp_few", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_R": [1, 2, 4]}, "run_knobs": {"ahead": [0, 1024, 4096]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_R": 4, "ahead": 0},
  "valid": ["batch * n <= 16"],
  "reads": "batch * n * (d_model + d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + d_ff)",
  "mapping": "equal contiguous outputs a thread, in two phases", "rank": 5
} */
#include <omp.h>

#include "real.h"

#include "call.h"
#include "gate.h"

#ifndef ADV_R
#define ADV_R 4 /* outputs at once: rows of weights read side by side */
#endif

#define ROWS 4 /* rows of x that meet a row of weights while it is in registers */

int64_t mlp_few_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return 2 * dims[0] * dims[3] * lines_of(dims[2]) * REAL_BYTES;
}

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

/* R outputs from r on, for all rows of x. */
INLINE void dots_of(const int R, const Product *p, int64_t r) {
    const real *w = p->w + r * p->depth;
    int64_t m = 0, ahead = p->ahead;
    for (; m + ROWS <= p->rows; m += ROWS, ahead = 0)
        dots(ROWS, R, p->x + m * p->x_row, p->x_row, w, p->depth, ahead, p->to + m * p->to_row + r, p->to_row);
    for (; m < p->rows; m++, ahead = 0)
        dots(1, R, p->x + m * p->x_row, p->x_row, w, p->depth, ahead, p->to + m * p->to_row + r, p->to_row);
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

/* dims: batch, d_model, d_ff, n, then ahead: bytes. */
int mlp_few(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t row = lines_of(c.f), ahead = dims[4] / REAL_BYTES;
    real *a = (real *)workspace, *b = a + c.rows * row; /* [rows][row] each */
#pragma omp parallel num_threads(threads)
    {
        int64_t own = omp_get_thread_num(), first = border(c.f, own, threads), end = border(c.f, own + 1, threads);
        outputs((Product){c.x, c.d, c.rows, c.wg, c.d, ahead, a, row}, first, end);
        outputs((Product){c.x, c.d, c.rows, c.wu, c.d, ahead, b, row}, first, end);
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t f = first; f < end; f += W) /* a row ends with a whole line, so the last vector has room */
                store(a + i * row + f, gated(load(a + i * row + f), load(b + i * row + f)));
#pragma omp barrier
        first = border(c.d, own, threads), end = border(c.d, own + 1, threads);
        outputs((Product){a, row, c.rows, c.wd, c.f, ahead, c.y, c.d}, first, end);
    }
    return 0;
}
