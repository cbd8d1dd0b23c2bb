/* variant {
  "idea": "P in memory, made from the row statistics; GS in its place; gv, gk and gq each a pass whose threads own the rows they write",
  "language": "c", "symbol": "backward_stored", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (head_dim * (6 * heads + 3 * kv_heads) + heads) + 4 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)", "writes": "batch * n * head_dim * (heads + 2 * kv_heads) + 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)", "atomics": "0",
  "mapping": "passes over query rows 8 at a time, and over rows of gk and gv 16 at a time", "rank": 90
} */
#include "plain.h"

/* P, then GS, [b*h][n][n]. */
int64_t backward_stored_workspace(const int64_t *dims, int threads) {
    Dims m = dims_of(dims);
    (void)threads;
    return m.batch * m.heads * m.n * m.n * (int64_t)sizeof(real);
}

/* Weights of one query row from its log-sum-exp. */
static void weigh_row(const Dims *m, const real *q, const real *k, int64_t count, real lse, real *p) {
    score_row(m, q, k, count, p);
    for (int64_t j = 0; j < count; j++) p[j] = power_of_e(p[j] - lse);
}

/* buffers: q, k, v, out, lse, gout, gq, gk, gv; dims: batch, heads, kv_heads, head_dim, causal, n. */
int backward_stored(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Dims m = dims_of(dims);
    const real *q = buffers[0], *k = buffers[1], *v = buffers[2], *out = buffers[3], *lse = buffers[4], *gout = buffers[5];
    real *p = workspace;
    int64_t rows = m.batch * m.heads * m.n, size = m.n * m.head_dim;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++)
            weigh_row(&m, q + row * m.head_dim, k + shared(&m, row / m.n) * size, seen(&m, row % m.n), lse[row],
                      p + row * m.n);
        plain_column_sums(&m, p, gout, buffers[8]);
        plain_score_gradients(&m, v, gout, out, p);
        plain_query_gradients(&m, p, k, buffers[6]);
        plain_column_sums(&m, p, q, buffers[7]);
    }
    return 0;
}
