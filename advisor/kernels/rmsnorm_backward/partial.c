/* variant {
  "idea": "one pass: each thread adds its rows' share of gg to a row of its own while x and gy are in its cache, then these are merged",
  "language": "c", "symbol": "rmsnorm_backward_partial", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "2 * batch * n * d_model + d_model", "writes": "batch * n * d_model + d_model",
  "mapping": "equal contiguous rows a thread, then equal contiguous columns", "rank": 10
} */
#include <omp.h>

#include "rms.h"

int64_t rmsnorm_backward_partial_workspace(const int64_t *dims, int threads) {
    return lines_of(dims[1]) * threads * (int64_t)sizeof(real);
}

/* gx of a row, and its share of gg added to `sums`. */
static void row_of(const real *restrict x, const real *restrict g, const real *restrict gy, int64_t count,
                   real *restrict gx, real *restrict sums) {
    real squares = 0, through = 0;
#pragma omp simd reduction(+ : squares, through)
    for (int64_t d = 0; d < count; d++) {
        squares += x[d] * x[d];
        through += gy[d] * g[d] * x[d];
    }
    real r = scale_of(squares, count), back = through * r * r * r / (real)count;
#pragma omp simd
    for (int64_t d = 0; d < count; d++) {
        gx[d] = r * gy[d] * g[d] - x[d] * back;
        sums[d] += gy[d] * x[d] * r;
    }
}

int rmsnorm_backward_partial(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t row = lines_of(c.d);
#pragma omp parallel num_threads(threads)
    {
        real *sums = (real *)workspace + row * omp_get_thread_num();
        memset(sums, 0, c.d * sizeof(real));
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++)
            row_of(c.x + i * c.d, c.g, c.gy + i * c.d, c.d, c.gx + i * c.d, sums);
#pragma omp for schedule(static)
        for (int64_t d = 0; d < c.d; d++) {
            real total = 0;
            for (int t = 0; t < threads; t++) total += ((const real *)workspace)[t * row + d];
            c.gg[d] = total;
        }
    }
    return 0;
}
