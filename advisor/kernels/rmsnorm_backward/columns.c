/* variant {
  "idea": "few rows: the threads share every row, and each sums gg of its own columns, so that nothing of gg is merged",
  "language": "c", "symbol": "rmsnorm_backward_columns", "dtypes": ["float32", "float64"], "requires": [],
  "valid": ["batch * n <= 128"],
  "reads": "2 * batch * n * d_model + d_model", "writes": "batch * n * d_model + d_model",
  "mapping": "each thread has one contiguous part of every row, whole cache lines", "rank": 20
} */
#include <omp.h>

#include "rms.h"

/* [threads][rows] pairs of a sum of squares and a sum of gy g x. */
int64_t rmsnorm_backward_columns_workspace(const int64_t *dims, int threads) {
    return lines_of(2 * dims[0] * dims[2]) * threads * (int64_t)sizeof(real);
}

/* A thread's part of the two sums of a row. */
static void sums_of(const real *x, const real *g, const real *gy, int64_t count, real *to) {
    real squares = 0, through = 0;
#pragma omp simd reduction(+ : squares, through)
    for (int64_t d = 0; d < count; d++) {
        squares += x[d] * x[d];
        through += gy[d] * g[d] * x[d];
    }
    to[0] = squares, to[1] = through;
}

static void part_of(const real *restrict x, const real *restrict g, const real *restrict gy, int64_t count, real r,
                    real back, real *restrict gx, real *restrict gg) {
#pragma omp simd
    for (int64_t d = 0; d < count; d++) {
        gx[d] = r * gy[d] * g[d] - x[d] * back;
        gg[d] += gy[d] * x[d] * r;
    }
}

int rmsnorm_backward_columns(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t row = lines_of(2 * c.rows), line = lines_of(1), lines = lines_of(c.d) / line;
    real *sums = (real *)workspace;
#pragma omp parallel num_threads(threads)
    {
        int64_t own = omp_get_thread_num(), first = least(c.d, lines * own / threads * line);
        int64_t count = least(c.d, lines * (own + 1) / threads * line) - first;
        for (int64_t i = 0; i < c.rows; i++)
            sums_of(c.x + i * c.d + first, c.g + first, c.gy + i * c.d + first, count, sums + own * row + 2 * i);
        memset(c.gg + first, 0, count * sizeof(real));
#pragma omp barrier
        for (int64_t i = 0; i < c.rows; i++) {
            real squares = 0, through = 0;
            for (int t = 0; t < threads; t++) squares += sums[t * row + 2 * i], through += sums[t * row + 2 * i + 1];
            real r = scale_of(squares, c.d), back = through * r * r * r / (real)c.d;
            int64_t at = i * c.d + first;
            part_of(c.x + at, c.g + first, c.gy + at, count, r, back, c.gx + at, c.gg + first);
        }
    }
    return 0;
}
