/* variant {
  "idea": "one pass: a row is scaled while it still lies in the cache, and its sum is spread over vector lanes",
  "language": "c", "symbol": "rmsnorm_one_pass", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "mapping": "equal contiguous rows a thread", "rank": 80
} */
#include "rms.h"

int64_t rmsnorm_one_pass_workspace(const int64_t *dims, int threads) {
    (void)dims, (void)threads;
    return 0;
}

int rmsnorm_one_pass(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    (void)workspace;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < c.rows; i++) {
        const real *x = c.x + i * c.d;
        real *y = c.y + i * c.d, squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t d = 0; d < c.d; d++) squares += x[d] * x[d];
        real scale = scale_of(squares, c.d);
#pragma omp simd
        for (int64_t d = 0; d < c.d; d++) y[d] = x[d] * scale * c.g[d];
    }
    return 0;
}
