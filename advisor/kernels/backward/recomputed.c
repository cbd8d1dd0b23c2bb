/* variant {
  "idea": "nothing of order n^2: each weight is made from the row statistics where it is needed, once for the owner of the row of gq and once for that of gk and gv",
  "language": "c", "symbol": "backward_recomputed", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (head_dim * (6 * heads + 4 * kv_heads) + 4 * heads)", "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + heads)", "atomics": "0",
  "mapping": "query rows 8 at a time, then rows of gk and gv 16 at a time", "rank": 80
} */
#include "plain.h"

/* Everything of a call; delta [b*h][n]. */
typedef struct {
    Dims m;
    const real *q, *k, *v, *out, *lse, *gout;
    real *gq, *gk, *gv, *delta;
} Call;

/* P and GS / sqrt(d) of one query row and one row of k and v, both counted over all heads. */
typedef struct {
    real weight, gradient;
} Pair;

static inline Pair pair_of(const Call *c, int64_t row, int64_t at) {
    int64_t d = c->m.head_dim;
    real scale = scale_of(&c->m), weight = power_of_e(scale * dot(c->q + row * d, c->k + at * d, d) - c->lse[row]);
    return (Pair){weight, weight * scale * (dot(c->gout + row * d, c->v + at * d, d) - c->delta[row])};
}

static void query_row(const Call *c, int64_t row) {
    int64_t d = c->m.head_dim, start = shared(&c->m, row / c->m.n) * c->m.n;
    memset(c->gq + row * d, 0, d * sizeof(real));
    c->delta[row] = dot(c->gout + row * d, c->out + row * d, d);
    for (int64_t j = 0; j < seen(&c->m, row % c->m.n); j++)
        add(pair_of(c, row, start + j).gradient, c->k + (start + j) * d, c->gq + row * d, d);
}

/* Rows first .. end - 1 of gk and gv of head g (of all sequences). */
static void key_rows(const Call *c, int64_t g, int64_t first, int64_t end) {
    int64_t d = c->m.head_dim, n = c->m.n, sharing = c->m.heads / c->m.kv_heads;
    memset(c->gk + (g * n + first) * d, 0, (end - first) * d * sizeof(real));
    memset(c->gv + (g * n + first) * d, 0, (end - first) * d * sizeof(real));
    for (int64_t row = g * sharing * n; row < (g + 1) * sharing * n; row++)
        for (int64_t j = first; j < end && j < seen(&c->m, row % n); j++) {
            Pair pair = pair_of(c, row, g * n + j);
            add(pair.weight, c->gout + row * d, c->gv + (g * n + j) * d, d);
            add(pair.gradient, c->q + row * d, c->gk + (g * n + j) * d, d);
        }
}

int64_t backward_recomputed_workspace(const int64_t *dims, int threads) {
    Dims m = dims_of(dims);
    (void)threads;
    return m.batch * m.heads * m.n * (int64_t)sizeof(real);
}

/* buffers: q, k, v, out, lse, gout, gq, gk, gv; dims: batch, heads, kv_heads, head_dim, causal, n. */
int backward_recomputed(void *const *b, const int64_t *dims, void *workspace, int threads) {
    Call c = {dims_of(dims), b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], workspace};
    int64_t n = c.m.n, groups = (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < c.m.batch * c.m.heads * n; row++) query_row(&c, row);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < c.m.batch * c.m.kv_heads * groups; task++) {
            int64_t first = task % groups * ROWS_AT_ONCE;
            key_rows(&c, task / groups, first, first + ROWS_AT_ONCE < n ? first + ROWS_AT_ONCE : n);
        }
    }
    return 0;
}
