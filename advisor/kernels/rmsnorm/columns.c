/* variant {
  "idea": "few rows: the threads share every row, so that all of them work where there are fewer rows than threads",
  "language": "c", "symbol": "rmsnorm_columns", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_U": [2, 4, 8]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_U": 4},
  "valid": ["batch * n <= 128"],
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "mapping": "each thread has one contiguous part of every row, whole cache lines", "rank": 20
} */
#include <omp.h>

#include "stream.h"

#define LINE (64 / REAL_BYTES) /* numbers in a cache line */

/* A thread's sums lie on lines of their own. */
static int64_t sums_row(int64_t rows) { return (rows + LINE - 1) / LINE * LINE; }

int64_t rmsnorm_columns_workspace(const int64_t *dims, int threads) {
    return sums_row(dims[0] * dims[2]) * threads * REAL_BYTES;
}

int rmsnorm_columns(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    int64_t row = sums_row(c.rows), lines = (c.d + LINE - 1) / LINE;
    real *sums = (real *)workspace; /* [threads][row] */
#pragma omp parallel num_threads(threads)
    {
        int64_t own = omp_get_thread_num(), first = lines * own / threads * LINE, end = lines * (own + 1) / threads * LINE;
        if (end > c.d) end = c.d;
        if (first > end) first = end;
        for (int64_t i = 0; i < c.rows; i++) sums[own * row + i] = squares_of(c.x + i * c.d + first, end - first);
#pragma omp barrier
        for (int64_t i = 0; i < c.rows; i++) {
            real squares = 0;
            for (int64_t t = 0; t < threads; t++) squares += sums[t * row + i];
            int64_t at = i * c.d + first;
            scaled(0, c.x + at, c.g + first, scale_of(squares, c.d), end - first, c.y + at);
        }
    }
    return 0;
}
