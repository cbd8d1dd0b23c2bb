/* variant {
  "idea": "P in memory: scores, softmax and weighted sums, each a pass over all heads",
  "language": "c", "symbol": "forward_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads) + 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)", "writes": "batch * heads * n * head_dim + 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)", "atomics": "0",
  "mapping": "three passes over query rows of all heads, handed out 8 at a time", "rank": 90
} */
#include "plain.h"

/* Scores and weights P [b*h][n][n]. */
int64_t forward_naive_workspace(const int64_t *dims, int threads) {
    Dims m = dims_of(dims);
    (void)threads;
    return m.batch * m.heads * m.n * m.n * (int64_t)sizeof(real);
}

/* buffers: q [b][h][n][d], k, v [b][g][n][d], out [b][h][n][d]; dims: batch, heads, kv_heads, head_dim, causal, n. */
int forward_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Dims m = dims_of(dims);
    const real *q = buffers[0], *k = buffers[1], *v = buffers[2];
    real *out = buffers[3], *p = workspace;
    int64_t rows = m.batch * m.heads * m.n, size = m.n * m.head_dim;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++)
            score_row(&m, q + row * m.head_dim, k + shared(&m, row / m.n) * size, seen(&m, row % m.n), p + row * m.n);
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++) softmax_row(p + row * m.n, seen(&m, row % m.n));
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++)
            weighted_sum(&m, p + row * m.n, v + shared(&m, row / m.n) * size, seen(&m, row % m.n), out + row * m.head_dim);
    }
    return 0;
}
