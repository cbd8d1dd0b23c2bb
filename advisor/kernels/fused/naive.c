/* variant {
  "idea": "forward, then backward with P kept in memory between them: each step a pass over all heads",
  "language": "c", "symbol": "fused_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * head_dim * (6 * heads + 4 * kv_heads) + 6 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)", "writes": "2 * batch * n * head_dim * (heads + kv_heads) + 3 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)", "atomics": "0",
  "mapping": "passes over query rows 8 at a time, and over rows of gk and gv 16 at a time", "rank": 90
} */
#include "plain.h"

/* P, then GS, [b*h][n][n]. */
int64_t fused_naive_workspace(const int64_t *dims, int threads) {
    Dims m = dims_of(dims);
    (void)threads;
    return m.batch * m.heads * m.n * m.n * (int64_t)sizeof(real);
}

/* buffers: q, k, v, gout, out, gq, gk, gv; dims: batch, heads, kv_heads, head_dim, causal, n. */
int fused_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Dims m = dims_of(dims);
    const real *q = buffers[0], *k = buffers[1], *v = buffers[2], *gout = buffers[3];
    real *out = buffers[4], *p = workspace;
    int64_t rows = m.batch * m.heads * m.n, size = m.n * m.head_dim;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++) {
            score_row(&m, q + row * m.head_dim, k + shared(&m, row / m.n) * size, seen(&m, row % m.n), p + row * m.n);
            softmax_row(p + row * m.n, seen(&m, row % m.n));
        }
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++)
            weighted_sum(&m, p + row * m.n, v + shared(&m, row / m.n) * size, seen(&m, row % m.n), out + row * m.head_dim);
        plain_column_sums(&m, p, gout, buffers[7]);
        plain_score_gradients(&m, v, gout, out, p);
        plain_query_gradients(&m, p, k, buffers[5]);
        plain_column_sums(&m, p, q, buffers[6]);
    }
    return 0;
}
