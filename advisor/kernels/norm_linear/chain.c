/* variant {
  "idea": "one after the other, as the formulas read: the norm of all rows to memory, then every output a dot product",
  "language": "c", "symbol": "norm_linear_chain", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (2 * d_model + d_model * d_out) + d_model", "writes": "batch * n * (d_model + d_out)",
  "mapping": "equal contiguous rows a thread, in both phases", "rank": 90
} */
#include "call.h"

int64_t norm_linear_chain_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return dims[0] * dims[3] * dims[1] * (int64_t)sizeof(real);
}

static real dot(const real *a, const real *b, int64_t count) {
    real total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t k = 0; k < count; k++) total += a[k] * b[k];
    return total;
}

int norm_linear_chain(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    real *normed = (real *)workspace; /* [rows][d] */
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++) {
            const real *x = c.x + i * c.d;
            real scale = scale_of(dot(x, x, c.d), c.d);
            for (int64_t d = 0; d < c.d; d++) normed[i * c.d + d] = x[d] * scale * c.g[d];
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t o = 0; o < c.o; o++) c.y[i * c.o + o] = dot(normed + i * c.d, c.w + o * c.d, c.d);
    }
    return 0;
}
