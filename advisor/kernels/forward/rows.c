/* variant {
  "idea": "row by row: the three steps of one query row at a time, so only a row of P exists and it stays in cache",
  "language": "c", "symbol": "forward_rows", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim", "atomics": "0",
  "mapping": "query rows of all heads, handed out 8 at a time", "rank": 80
} */
#include <omp.h>

#include "plain.h"

/* Bytes of one thread's row of scores, whole cache lines. */
static int64_t row_bytes(const Dims *m) { return (m->n * (int64_t)sizeof(real) + 63) & -64; }

int64_t forward_rows_workspace(const int64_t *dims, int threads) {
    Dims m = dims_of(dims);
    return threads * row_bytes(&m);
}

/* buffers: q [b][h][n][d], k, v [b][g][n][d], out [b][h][n][d]; dims: batch, heads, kv_heads, head_dim, causal, n. */
int forward_rows(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Dims m = dims_of(dims);
    const real *q = buffers[0], *k = buffers[1], *v = buffers[2];
    real *out = buffers[3];
    int64_t rows = m.batch * m.heads * m.n, size = m.n * m.head_dim;
#pragma omp parallel num_threads(threads)
    {
        real *p = (real *)((char *)workspace + omp_get_thread_num() * row_bytes(&m));
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < rows; row++) {
            int64_t count = seen(&m, row % m.n), at = shared(&m, row / m.n) * size;
            score_row(&m, q + row * m.head_dim, k + at, count, p);
            softmax_row(p, count);
            weighted_sum(&m, p, v + at, count, out + row * m.head_dim);
        }
    }
    return 0;
}
