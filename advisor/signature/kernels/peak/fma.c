/* variant {
  "idea": "a row in groups of CHAINS vectors of ADV_V bytes, each a chain of multiply-adds in a register of its own",
  "language": "c", "symbol": "peak_fma", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {},
  "build_knobs": {"ADV_V": [32, 64]},
  "defaults": {"ADV_V": 32},
  "reads": "384 * n", "writes": "384 * n", "atomics": "0",
  "mapping": "equal contiguous shares of rows, one a thread", "rank": 10
} */
#include <omp.h>

#include "real.h"

#define CHAINS 12 /* over the 8 to 10 that hide a latency of 4 or 5 at two a cycle, and 14 registers hold all of it */
#define WIDTH 384 /* numbers of a row */

/* y <- x after `steps` steps, CHAINS vectors. */
INLINE void chains(const real *x, real *y, int64_t steps) {
    const vec factor = held(spread((real)(1.0 - 1.0 / 1024))), rest = held(spread((real)(1.0 / 1024)));
    vec a[CHAINS];
    UNROLL for (int c = 0; c < CHAINS; c++) a[c] = load(x + c * W);
    for (int64_t s = 0; s < steps; s++) UNROLL for (int c = 0; c < CHAINS; c++) a[c] = a[c] * factor + rest;
    UNROLL for (int c = 0; c < CHAINS; c++) store(y + c * W, a[c]);
}

int64_t peak_fma_workspace(const int64_t *dims, int threads) {
    (void)dims;
    (void)threads;
    return 0;
}

/* buffers: x, y [n][WIDTH]; dims: steps, n. */
int peak_fma(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    const real *x = buffers[0];
    real *y = buffers[1];
    int64_t steps = dims[0], n = dims[1];
    (void)workspace;
#pragma omp parallel num_threads(threads)
    {
        int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
        for (int64_t i = WIDTH * (n * t / team); i < WIDTH * (n * (t + 1) / team); i += CHAINS * W)
            chains(x + i, y + i, steps);
    }
    return 0;
}
