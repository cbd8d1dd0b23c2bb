/* variant {
  "idea": "one pass in explicit vectors: several sums at once, and stores that can go past the caches, which saves reading y",
  "language": "c", "symbol": "rmsnorm_rows", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_U": [2, 4, 8]}, "run_knobs": {"past": [0, 1]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_U": 4, "past": 0},
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "mapping": "equal contiguous rows a thread", "rank": 10
} */
#include "stream.h"

int64_t rmsnorm_rows_workspace(const int64_t *dims, int threads) {
    (void)dims, (void)threads;
    return 0;
}

/* dims: batch, d_model, n, then past: 1 stores y past the caches. */
int rmsnorm_rows(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int past = dims[3] != 0;
    (void)workspace;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < c.rows; i++) {
            const real *x = c.x + i * c.d;
            real scale = scale_of(squares_of(x, c.d), c.d);
            if (past)
                scaled(1, x, c.g, scale, c.d, c.y + i * c.d);
            else
                scaled(0, x, c.g, scale, c.d, c.y + i * c.d);
        }
        if (past) stores_done();
    }
    return 0;
}
