/* variant {
  "idea": "two passes over all rows, as the formula reads: the scale of every row, then every product",
  "language": "c", "symbol": "rmsnorm_two_pass", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "2 * batch * n * d_model + d_model + batch * n", "writes": "batch * n * d_model + batch * n",
  "mapping": "equal contiguous rows a thread, in both passes", "rank": 90
} */
#include "rms.h"

int64_t rmsnorm_two_pass_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return dims[0] * dims[2] * (int64_t)sizeof(real);
}

int rmsnorm_two_pass(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    real *scales = (real *)workspace; /* [rows] */
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++) {
            real squares = 0;
            for (int64_t d = 0; d < c.d; d++) squares += c.x[i * c.d + d] * c.x[i * c.d + d];
            scales[i] = scale_of(squares, c.d);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t d = 0; d < c.d; d++) c.y[i * c.d + d] = c.x[i * c.d + d] * scales[i] * c.g[d];
    }
    return 0;
}
