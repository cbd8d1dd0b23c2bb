/* What the plain rungs of attention share: loops as one would write them first, for any head_dim and any n.

   Letters as in attention.py: i a query row, j a row of k and v, d an element of a head. */
#ifndef ADVISOR_PLAIN_H
#define ADVISOR_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "advisor.h"

typedef ADV_REAL real;

#define LOWEST ((real)-1e30) /* stands for minus infinity, which -ffinite-math-only makes undefined */
#define ROWS_AT_ONCE 16 /* rows of gk, gv that a thread sums together: 16 rows of 64 doubles fill a quarter of the L1 */

/* The dims that all attention kernels begin with. */
typedef struct {
    int64_t batch, heads, kv_heads, head_dim, causal, n;
} Dims;

static inline Dims dims_of(const int64_t *dims) {
    return (Dims){dims[0], dims[1], dims[2], dims[3], dims[4], dims[5]};
}

/* How many rows of k and v query row i attends to. */
static inline int64_t seen(const Dims *m, int64_t i) { return m->causal ? i + 1 : m->n; }

/* The head of k and v that query head h (of all sequences) reads. */
static inline int64_t shared(const Dims *m, int64_t h) { return h / (m->heads / m->kv_heads); }

static inline real scale_of(const Dims *m) { return 1 / (real)sqrt((double)m->head_dim); }

static inline real power_of_e(real x) { return sizeof(real) == 8 ? (real)exp((double)x) : (real)expf((float)x); }

static inline real dot(const real *a, const real *b, int64_t count) {
    real total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t d = 0; d < count; d++) total += a[d] * b[d];
    return total;
}

/* to += factor * from */
static inline void add(real factor, const real *from, real *to, int64_t count) {
#pragma omp simd
    for (int64_t d = 0; d < count; d++) to[d] += factor * from[d];
}

/* s[j] = q . k[j] / sqrt(d) for the first `count` rows of k. */
static inline void score_row(const Dims *m, const real *q, const real *k, int64_t count, real *s) {
    real scale = scale_of(m);
    for (int64_t j = 0; j < count; j++) s[j] = scale * dot(q, k + j * m->head_dim, m->head_dim);
}

/* Scores become softmax weights. */
static inline void softmax_row(real *s, int64_t count) {
    real most = LOWEST, total = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < count; j++) most = s[j] > most ? s[j] : most;
    for (int64_t j = 0; j < count; j++) s[j] = power_of_e(s[j] - most), total += s[j];
    real part = 1 / total;
#pragma omp simd
    for (int64_t j = 0; j < count; j++) s[j] *= part;
}

/* to = sum over j of w[j] rows[j] */
static inline void weighted_sum(const Dims *m, const real *w, const real *rows, int64_t count, real *to) {
    memset(to, 0, m->head_dim * sizeof(real));
    for (int64_t j = 0; j < count; j++) add(w[j], rows + j * m->head_dim, to, m->head_dim);
}

/* P [b*h][n][n] of all heads becomes GS / sqrt(d) in place, row by row. Call it inside a parallel region. */
static inline void plain_score_gradients(const Dims *m, const real *v, const real *gout, const real *out, real *p) {
    int64_t rows = m->batch * m->heads * m->n;
    real scale = scale_of(m);
#pragma omp for schedule(dynamic, 8)
    for (int64_t row = 0; row < rows; row++) {
        int64_t count = seen(m, row % m->n);
        const real *g = gout + row * m->head_dim, *values = v + shared(m, row / m->n) * m->n * m->head_dim;
        real *gs = p + row * m->n, delta = dot(g, out + row * m->head_dim, m->head_dim);
        for (int64_t j = 0; j < count; j++)
            gs[j] *= scale * (dot(g, values + j * m->head_dim, m->head_dim) - delta);
    }
}

/* gq[i] = sum over j of GS[i,j] k[j]. Call it inside a parallel region. */
static inline void plain_query_gradients(const Dims *m, const real *gs, const real *k, real *gq) {
    int64_t rows = m->batch * m->heads * m->n;
#pragma omp for schedule(dynamic, 8)
    for (int64_t row = 0; row < rows; row++)
        weighted_sum(m, gs + row * m->n, k + shared(m, row / m->n) * m->n * m->head_dim, seen(m, row % m->n),
                     gq + row * m->head_dim);
}

/* to[j] = sum over i, and over the query heads that share j, of w[i,j] from[i]: gv of P and gout, gk of GS and q. One
   thread owns ROWS_AT_ONCE rows of the result. Call it inside a parallel region. */
static inline void plain_column_sums(const Dims *m, const real *w, const real *from, real *to) {
    int64_t n = m->n, d = m->head_dim, sharing = m->heads / m->kv_heads, groups = (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < m->batch * m->kv_heads * groups; task++) {
        int64_t g = task / groups, first = task % groups * ROWS_AT_ONCE;
        int64_t end = first + ROWS_AT_ONCE < n ? first + ROWS_AT_ONCE : n;
        memset(to + (g * n + first) * d, 0, (end - first) * d * sizeof(real));
        for (int64_t row = g * sharing * n; row < (g + 1) * sharing * n; row++)
            for (int64_t j = first; j < end && j < seen(m, row % n); j++)
                add(w[row * n + j], from + row * d, to + (g * n + j) * d, d);
    }
}

#endif
