/* variant {
  "idea": "gx row by row with r kept, then gg column by column, which walks x and gy across their rows",
  "language": "c", "symbol": "rmsnorm_backward_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "4 * batch * n * d_model + d_model + batch * n", "writes": "batch * n * d_model + d_model + batch * n",
  "mapping": "equal contiguous rows a thread, then equal contiguous columns", "rank": 90
} */
#include "rms.h"

int64_t rmsnorm_backward_naive_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return dims[0] * dims[2] * (int64_t)sizeof(real);
}

int rmsnorm_backward_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    real *scales = (real *)workspace; /* [rows] */
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++) {
            const real *x = c.x + i * c.d, *gy = c.gy + i * c.d;
            real squares = 0, through = 0;
            for (int64_t d = 0; d < c.d; d++) {
                squares += x[d] * x[d];
                through += gy[d] * c.g[d] * x[d];
            }
            real r = scales[i] = scale_of(squares, c.d), back = through * r * r * r / (real)c.d;
            for (int64_t d = 0; d < c.d; d++) c.gx[i * c.d + d] = r * gy[d] * c.g[d] - x[d] * back;
        }
#pragma omp for schedule(static)
        for (int64_t d = 0; d < c.d; d++) {
            real total = 0;
            for (int64_t i = 0; i < c.rows; i++) total += c.gy[i * c.d + d] * c.x[i * c.d + d] * scales[i];
            c.gg[d] = total;
        }
    }
    return 0;
}
