/* What the tiled fused variants share: the call, and the forward pass of one strip of query rows. */
#ifndef ADVISOR_ATTEND_H
#define ADVISOR_ATTEND_H

#include "call.h"

/* buffers: q, k, v, gout, out, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
INLINE Call fused_call(void *const *b, const int64_t *dims, void *workspace) {
    Call c = sized_call(dims, workspace);
    c.q = (const real *)b[0], c.k = (const real *)b[1], c.v = (const real *)b[2], c.gout = (const real *)b[3];
    c.out = (real *)b[4], c.gq = (real *)b[5], c.gk = (real *)b[6], c.gv = (real *)b[7];
    return c;
}

/* delta [WIDE] = gout . out / sqrt(d) of each row, times factor [WIDE] (NULL: 1); zero for the rest. */
static void strip_delta(const real *gout, const real *out, int64_t rows, const real *factor, real *delta) {
    for (int64_t r = 0; r < WIDE; r++) {
        real total = 0;
        if (r < rows) {
#pragma omp simd reduction(+ : total)
            for (int d = 0; d < ADV_D; d++) total += gout[r * ADV_D + d] * out[r * ADV_D + d];
        }
        delta[r] = total * score_scale() * (factor ? factor[r] : 1);
    }
}

/* The running maximum, total and shrinking factor of an online softmax. */
typedef struct {
    real most[WIDE], total[WIDE], factor[WIDE];
} Online;

/* Scores of `rows` rows of k to weights against the new maximum; the factor by which earlier sums shrink. */
static void weigh_online(real *s, int64_t rows, Online *at) {
    for (int x = 0; x < WIDE; x += W) {
        vec old = load(at->most + x), best = old;
        for (int64_t j = 0; j < rows; j++) best = larger(best, load(s + j * WIDE + x));
        vec shrink = exp2_of(old - best), sum = load(at->total + x) * shrink;
        for (int64_t j = 0; j < rows; j++) {
            vec weight = exp2_of(load(s + j * WIDE + x) - best);
            store(s + j * WIDE + x, weight);
            sum += weight;
        }
        store(at->most + x, best);
        store(at->total + x, sum);
        store(at->factor + x, shrink);
    }
}

/* out, lse and delta of query rows first .. first + WIDE - 1, whose q is packed. sums: a strip; s: a block of scores. */
static void attend_packed(const Call *c, int64_t h, int64_t first, const real *q, real *sums, real *s) {
    Head head = head_of(c, h);
    Online at;
    int64_t rows = least(WIDE, c->n - first), end = c->causal ? first + rows : c->n, row = h * padded(c->n) + first;
    real *out = c->out + h * c->size + first * ADV_D;
    for (int x = 0; x < WIDE; x++) at.most[x] = LOWEST, at.total[x] = 0;
    memset(sums, 0, PANELS * sizeof(real));
    for (int64_t j = 0; j < end; j += c->block) {
        int64_t count = least(c->block, end - j);
        across(head.k + j * ADV_D, count, q, s);
        if (c->causal && j + count > first) mask_queries(s, count, j, first);
        weigh_online(s, count, &at);
        onto_from(SCALED, head.v + j * ADV_D, count, s, sums, at.factor);
    }
    for (int x = 0; x < WIDE; x++) {
        c->lse[row + x] = at.most[x] + (real)log2((double)at.total[x]);
        at.factor[x] = 1 / at.total[x];
    }
    unpack(sums, rows, at.factor, out);
    strip_delta(head.gout + first * ADV_D, out, rows, 0, c->delta + row);
}

#endif
