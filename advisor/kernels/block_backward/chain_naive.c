/* variant {
  "idea": "the chain of the naive kernels: forward again, then back one step after the other, every result through memory; nothing of order n^2",
  "language": "c", "symbol": "block_backward_chain_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (18 * d_model + 15 * heads * head_dim + 14 * kv_heads * head_dim + 7 * d_ff) + batch * n * d_model * (6 * (heads + kv_heads) * head_dim + 8 * d_ff)",
  "writes": "batch * n * (7 * d_model + 7 * heads * head_dim + 8 * kv_heads * head_dim + 6 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "mapping": "equal contiguous rows a thread, or rows of a weight; attention as in backward's recomputed", "rank": 90
} */
#include <omp.h>

#include "layer_plain.h"

/* The gradients of attention, row by row from the statistics. */
#include "../backward/recomputed.c"

#include "call.h"

/* Beside the parts: lse and delta [b*h][n], a scale a row; a thread's row of scores. */
static int64_t rest_numbers(const Layer *l) { return lines_of(2 * l->rows * l->heads + l->rows); }

int64_t block_backward_chain_naive_workspace(const int64_t *dims, int threads) {
    Layer l = layer_of(dims);
    return (plan_of(&l).all + rest_numbers(&l) + threads * lines_of(l.n)) * (int64_t)sizeof(real);
}

/* to [rows][columns] = a [rows][depth] times w [depth][columns], added where `more` */
static void through(const Layer *l, const real *a, int64_t depth, const real *w, int64_t columns, int more, real *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) {
        if (!more) memset(to + i * columns, 0, columns * sizeof(real));
        for (int64_t k = 0; k < depth; k++) add(a[i * depth + k], w + k * columns, to + i * columns, columns);
    }
}

/* to [outputs][columns] = a [rows][outputs] transposed times b [rows][columns]: the gradient of a weight */
static void of_weight(const Layer *l, const real *a, int64_t outputs, const real *b, int64_t columns, real *to) {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < outputs; k++) {
        memset(to + k * columns, 0, columns * sizeof(real));
        for (int64_t i = 0; i < l->rows; i++) add(a[i * outputs + k], b + i * columns, to + k * columns, columns);
    }
}

/* gx = plus + the gradient of RMSNorm at x for a cotangent gy, gg likewise; scales [rows] is room. */
static void norm_back(const Layer *l, const real *x, const real *g, const real *gy, const real *plus, real *gx, real *gg,
                      real *scales) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) {
        const real *one = x + i * l->d, *from = gy + i * l->d;
        real back = 0, r = scales[i] = norm_scale(one, l->d);
        for (int64_t d = 0; d < l->d; d++) back += from[d] * g[d] * one[d];
        back *= r * r * r / (real)l->d;
        for (int64_t d = 0; d < l->d; d++) gx[i * l->d + d] = plus[i * l->d + d] + r * from[d] * g[d] - one[d] * back;
    }
#pragma omp for schedule(static)
    for (int64_t d = 0; d < l->d; d++) {
        real total = 0;
        for (int64_t i = 0; i < l->rows; i++) total += gy[i * l->d + d] * x[i * l->d + d] * scales[i];
        gg[d] = total;
    }
}

/* a, b, gh become ga, gb, h. */
static void gate_back(const Layer *l, real *a, real *b, real *gh) {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < l->rows * l->f; k++) {
        real s = sigmoid(a[k]), one = a[k], up = b[k], g = gh[k];
        a[k] = g * up * s * (1 + one * (1 - s));
        b[k] = g * one * s;
        gh[k] = one * s * up;
    }
}

static void attention_back(const Call *c) {
    int64_t n = c->m.n, groups = (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
#pragma omp for schedule(dynamic, 8)
    for (int64_t row = 0; row < c->m.batch * c->m.heads * n; row++) query_row(c, row);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->m.batch * c->m.kv_heads * groups; task++) {
        int64_t first = task % groups * ROWS_AT_ONCE;
        key_rows(c, task / groups, first, first + ROWS_AT_ONCE < n ? first + ROWS_AT_ONCE : n);
    }
}

static void forward(const Block *c, real **r, const Heads *heads, real *lse, real *scores) {
    const Layer *l = &c->l;
    Heads outs = {r[OUT], 0, 0};
    plain_norm(l, c->x, c->g1, r[NORMAL]);
    plain_product(r[NORMAL], l->rows, l->d, c->wqkv, l->all, 0, r[QKV]);
    plain_split(l, r[QKV], l->all, heads);
    plain_attention(l, heads, r[OUT], lse, scores);
    plain_join(l, &outs, l->own, r[MIXED]);
    plain_product(r[MIXED], l->rows, l->own, c->wo, l->d, c->x, r[MIDDLE]);
    plain_norm(l, r[MIDDLE], c->g2, r[NORMAL_2]);
    plain_product(r[NORMAL_2], l->rows, l->d, c->wg, l->f, 0, r[GA]);
    plain_product(r[NORMAL_2], l->rows, l->d, c->wu, l->f, 0, r[GB]);
}

/* From gy to the gradient of m. */
static void mlp_back(const Block *c, real **r, real *scales) {
    const Layer *l = &c->l;
    through(l, c->gy, l->d, c->wd, l->f, 0, r[H]);
    gate_back(l, r[GA], r[GB], r[H]);
    through(l, r[GA], l->f, c->wg, l->d, 0, r[G_NORMAL]);
    through(l, r[GB], l->f, c->wu, l->d, 1, r[G_NORMAL]);
    of_weight(l, r[GA], l->f, r[NORMAL_2], l->d, c->gwg);
    of_weight(l, r[GB], l->f, r[NORMAL_2], l->d, c->gwu);
    of_weight(l, c->gy, l->d, r[H], l->f, c->gwd);
    norm_back(l, r[MIDDLE], c->g2, r[G_NORMAL], c->gy, r[G_MIDDLE], c->gg2, scales);
}

/* From there to gx. */
static void mixing_back(const Block *c, real **r, const Call *attention, real *scales) {
    const Layer *l = &c->l;
    Heads gouts = {r[G_OUT], 0, 0}, gradients = heads_in(l, r[G_HEADS]);
    through(l, r[G_MIDDLE], l->d, c->wo, l->own, 0, r[G_MIXED]);
    of_weight(l, r[G_MIDDLE], l->d, r[MIXED], l->own, c->gwo);
    plain_split(l, r[G_MIXED], l->own, &gouts);
    attention_back(attention);
    plain_join(l, &gradients, l->all, r[G_QKV]);
    through(l, r[G_QKV], l->all, c->wqkv, l->d, 0, r[G_NORMAL]);
    of_weight(l, r[G_QKV], l->all, r[NORMAL], l->d, c->gwqkv);
    norm_back(l, c->x, c->g1, r[G_NORMAL], r[G_MIDDLE], c->gx, c->gg1, scales);
}

int block_backward_chain_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Block c = block_of(buffers, dims);
    const Layer *l = &c.l;
    Plan plan = plan_of(l);
    real *r[PARTS], *lse = (real *)workspace + plan.all, *delta = lse + l->rows * l->heads;
    real *scales = delta + l->rows * l->heads, *scores = lse + rest_numbers(l);
    place_parts(&plan, (real *)workspace, r);
    Heads heads = heads_in(l, r[HEADS]), to = heads_in(l, r[G_HEADS]);
    Call attention = {attention_of(l), heads.q, heads.k, heads.v, r[OUT], lse, r[G_OUT], to.q, to.k, to.v, delta};
#pragma omp parallel num_threads(threads)
    {
        forward(&c, r, &heads, lse, scores + omp_get_thread_num() * lines_of(l->n));
        mlp_back(&c, r, scales);
        mixing_back(&c, r, &attention, scales);
    }
    return 0;
}
