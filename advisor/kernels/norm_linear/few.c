/* variant {
  "idea": "few rows, down to a single token: each thread norms them for itself, and every weight is read once, where it lies",
  "language": "c", "symbol": "norm_linear_few", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_U": "4"}, "build_knobs": {"ADV_V": [32, 64], "ADV_R": [1, 2, 4]}, "run_knobs": {"ahead": [0, 1024, 4096]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_R": 4, "ahead": 0},
  "valid": ["batch * n <= 16"],
  "reads": "batch * n * d_model + d_model + d_model * d_out", "writes": "batch * n * d_out",
  "mapping": "equal contiguous outputs a thread", "rank": 5
} */
#include <omp.h>

#include "dots.h"
#include "squares.h"

#include "call.h"

int64_t norm_linear_few_workspace(const int64_t *dims, int threads) {
    return threads * dims[0] * dims[3] * lines_of(dims[1]) * REAL_BYTES;
}

/* dims: batch, d_model, d_out, n, then ahead: bytes. */
int norm_linear_few(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t row = lines_of(c.d), ahead = dims[4] / REAL_BYTES;
#pragma omp parallel num_threads(threads)
    {
        int64_t own = omp_get_thread_num(), first = border(c.o, own, threads), end = border(c.o, own + 1, threads);
        real *normed = (real *)workspace + own * c.rows * row; /* [rows][row]: norming twice is dearer than no barrier */
        for (int64_t i = 0; first < end && i < c.rows; i++) {
            const real *x = c.x + i * c.d;
            scaled(0, x, c.g, scale_of(squares_of(x, c.d), c.d), c.d, normed + i * row);
        }
        outputs((Product){normed, row, c.rows, c.w, c.d, ahead, c.y, c.o}, first, end);
    }
    return 0;
}
