/* variant {
  "idea": "few rows, down to a single token: every weight is read once, where it lies, and the threads share the outputs",
  "language": "c", "symbol": "mlp_few", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_R": [1, 2, 4]}, "run_knobs": {"ahead": [0, 1024, 4096]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_R": 4, "ahead": 0},
  "valid": ["batch * n <= 16"],
  "reads": "batch * n * (d_model + d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + d_ff)",
  "mapping": "equal contiguous outputs a thread, in two phases", "rank": 5
} */
#include <omp.h>

#include "dots.h"

#include "call.h"
#include "gate.h"

int64_t mlp_few_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return 2 * dims[0] * dims[3] * lines_of(dims[2]) * REAL_BYTES;
}

/* dims: batch, d_model, d_ff, n, then ahead: bytes. */
int mlp_few(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t row = lines_of(c.f), ahead = dims[4] / REAL_BYTES;
    real *a = (real *)workspace, *b = a + c.rows * row; /* [rows][row] each */
#pragma omp parallel num_threads(threads)
    {
        int64_t own = omp_get_thread_num(), first = border(c.f, own, threads), end = border(c.f, own + 1, threads);
        outputs((Product){c.x, c.d, c.rows, c.wg, c.d, ahead, a, row}, first, end);
        outputs((Product){c.x, c.d, c.rows, c.wu, c.d, ahead, b, row}, first, end);
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t f = first; f < end; f += W) /* a row ends with a whole line, so the last vector has room */
                store(a + i * row + f, gated(load(a + i * row + f), load(b + i * row + f)));
#pragma omp barrier
        first = border(c.d, own, threads), end = border(c.d, own + 1, threads);
        outputs((Product){a, row, c.rows, c.wd, c.f, ahead, c.y, c.d}, first, end);
    }
    return 0;
}
