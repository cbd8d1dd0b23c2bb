/* variant {
  "idea": "row by row, one product after the other, as the formula reads",
  "language": "c", "symbol": "mlp_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (d_model + 3 * d_model * d_ff)", "writes": "batch * n * d_model",
  "mapping": "equal contiguous rows a thread", "rank": 90
} */
#include <omp.h>

#include "call.h"

int64_t mlp_naive_workspace(const int64_t *dims, int threads) {
    return lines_of(dims[2]) * threads * (int64_t)sizeof(real);
}

static real dot(const real *a, const real *b, int64_t count) {
    real total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t k = 0; k < count; k++) total += a[k] * b[k];
    return total;
}

/* Far to the left exp overflows to a large finite number or to infinity, by which is divided: the limit is 0. */
static real silu(real a) {
    if (a < -80) return 0; /* |a exp(a)| is under 2e-33 */
    return a / (1 + (sizeof(real) == 8 ? (real)exp(-(double)a) : (real)expf(-(float)a)));
}

int mlp_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
#pragma omp parallel num_threads(threads)
    {
        real *h = (real *)workspace + lines_of(c.f) * omp_get_thread_num(); /* [f] */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++) {
            const real *x = c.x + i * c.d;
            for (int64_t f = 0; f < c.f; f++)
                h[f] = silu(dot(x, c.wg + f * c.d, c.d)) * dot(x, c.wu + f * c.d, c.d);
            for (int64_t d = 0; d < c.d; d++) c.y[i * c.d + d] = dot(h, c.wd + d * c.f, c.f);
        }
    }
    return 0;
}
