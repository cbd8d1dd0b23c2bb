/* What backward's tiled variants make of out and lse first: row statistics, once a call. */
#ifndef ADVISOR_STATISTICS_H
#define ADVISOR_STATISTICS_H

#include "call.h"

/* buffers: q, k, v, out, lse, gout, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
INLINE Call backward_call(void *const *b, const int64_t *dims, void *workspace) {
    Call c = sized_call(dims, workspace);
    c.q = (const real *)b[0], c.k = (const real *)b[1], c.v = (const real *)b[2], c.out = (real *)b[3];
    c.gout = (const real *)b[5], c.gq = (real *)b[6], c.gk = (real *)b[7], c.gv = (real *)b[8];
    return c;
}

/* lse in base 2, of the natural logarithms log_sums [b*h][n], and delta = gout . out / sqrt(d); zero in the padding. Call it inside the parallel region. */
static void statistics(const Call *c, const real *log_sums) {
    int64_t wide = padded(c->n);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < c->heads * wide; row++) {
        int64_t i = row % wide, from = row / wide * c->n + i;
        real total = 0, low = 0;
        if (i < c->n) {
            const real *gout = c->gout + from * ADV_D, *out = c->out + from * ADV_D;
            low = log_sums[from] * LOG2_E;
#pragma omp simd reduction(+ : total)
            for (int d = 0; d < ADV_D; d++) total += gout[d] * out[d];
        }
        c->lse[row] = low;
        c->delta[row] = total * score_scale();
    }
}

#endif
