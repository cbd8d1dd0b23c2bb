/* variant {
  "idea": "each product by OpenBLAS, the gate in vectors between them",
  "language": "c", "symbol": "mlp_blas", "dtypes": ["float32", "float64"], "requires": [], "libraries": ["openblas"],
  "build_knobs": {"ADV_V": [32, 64]}, "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32},
  "reads": "batch * n * (d_model + 3 * d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + 3 * d_ff)",
  "mapping": "OpenBLAS's own; between products equal contiguous elements of h a thread", "rank": 60
} */
#include "blas.h"

#include "call.h"
#include "gate.h"

int64_t mlp_blas_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return 2 * lines_of(dims[0] * dims[3] * dims[2]) * REAL_BYTES;
}

int mlp_blas(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t room = lines_of(c.rows * c.f); /* whole lines, so that the last vector has room */
    real *a = (real *)workspace, *b = a + room; /* [rows][f] each */
    int before = use_threads(threads);
    product_by_blas(c.x, c.rows, c.wg, c.f, c.d, a);
    product_by_blas(c.x, c.rows, c.wu, c.f, c.d, b);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t k = 0; k < room; k += W) store(a + k, gated(load(a + k), load(b + k)));
    product_by_blas(a, c.rows, c.wd, c.d, c.f, c.y);
    use_threads(before);
    return 0;
}
