/* The steps of a transformer block as one would write them first, each a pass over all rows through memory. Call them
   inside a parallel region: every pass ends with a barrier. */
#ifndef ADVISOR_LAYER_PLAIN_H
#define ADVISOR_LAYER_PLAIN_H

#include "plain.h"

#define scale_of scale_of_row /* plain.h has a scale_of of its own, attention's */
#include "scale.h"
#undef scale_of

#include "layer.h"

static inline Dims attention_of(const Layer *l) {
    return (Dims){l->batch, l->heads, l->kv_heads, l->e, l->causal, l->n};
}

static inline real norm_scale(const real *x, int64_t d) { return scale_of_row(dot(x, x, d), d); }

/* to [rows][d] = x r g */
static inline void plain_norm(const Layer *l, const real *x, const real *g, real *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) {
        real scale = norm_scale(x + i * l->d, l->d);
        for (int64_t d = 0; d < l->d; d++) to[i * l->d + d] = x[i * l->d + d] * scale * g[d];
    }
}

/* to [rows][columns] = a [rows][depth] times w [columns][depth] transposed, plus `plus` [rows][columns] (NULL: 0) */
static inline void plain_product(const real *a, int64_t rows, int64_t depth, const real *w, int64_t columns,
                                 const real *plus, real *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++)
            to[i * columns + c] = dot(a + i * depth, w + c * depth, depth) + (plus ? plus[i * columns + c] : 0);
}

static inline void plain_split(const Layer *l, const real *from, int64_t columns, const Heads *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) split_row(l, from + i * columns, i, 0, columns, to);
}

static inline void plain_join(const Layer *l, const Heads *from, int64_t columns, real *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) join_row(l, from, i, columns, to + i * columns);
}

/* out [b][h][n][e], and each row's log of the sum of exp of its scores in lse [b][h][n] (NULL: not kept). A thread keeps
   one row of scores, p [n]: the whole matrix has n^2. */
static inline void plain_attention(const Layer *l, const Heads *in, real *out, real *lse, real *p) {
    Dims m = attention_of(l);
#pragma omp for schedule(dynamic, 8)
    for (int64_t row = 0; row < m.batch * m.heads * m.n; row++) {
        int64_t count = seen(&m, row % m.n), at = shared(&m, row / m.n) * m.n * m.head_dim;
        score_row(&m, in->q + row * m.head_dim, in->k + at, count, p);
        real most = p[0], total = 0;
        for (int64_t j = 0; j < count; j++) most = p[j] > most ? p[j] : most;
        for (int64_t j = 0; j < count; j++) p[j] = power_of_e(p[j] - most), total += p[j];
        real part = 1 / total;
        for (int64_t j = 0; j < count; j++) p[j] *= part;
        weighted_sum(&m, p, in->v + at, count, out + row * m.head_dim);
        if (lse) lse[row] = most + (sizeof(real) == 8 ? (real)log((double)total) : (real)logf((float)total));
    }
}

/* 1 / (1 + exp(-a)); far to the left, where exp overflows, the limit 0. */
static inline real sigmoid(real a) { return a < -80 ? 0 : 1 / (1 + power_of_e(-a)); }

#endif
