/* variant {
  "idea": "the norm of all rows to memory, then one product by OpenBLAS",
  "language": "c", "symbol": "norm_linear_blas", "dtypes": ["float32", "float64"], "requires": [], "libraries": ["openblas"],
  "macros": {"ADV_U": "4"}, "build_knobs": {"ADV_V": [32, 64]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32},
  "reads": "2 * batch * n * d_model + d_model + d_model * d_out", "writes": "batch * n * (d_model + d_out)",
  "mapping": "equal contiguous rows a thread, then OpenBLAS's own", "rank": 60
} */
#include "blas.h"
#include "squares.h"

#include "call.h"

int64_t norm_linear_blas_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return dims[0] * dims[3] * dims[1] * REAL_BYTES;
}

int norm_linear_blas(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    real *normed = (real *)workspace; /* [rows][d] */
    int before = use_threads(threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < c.rows; i++) {
        const real *x = c.x + i * c.d;
        scaled(0, x, c.g, scale_of(squares_of(x, c.d), c.d), c.d, normed + i * c.d);
    }
    product_by_blas(normed, c.rows, c.w, c.o, c.d, c.y);
    use_threads(before);
    return 0;
}
