/* What backward's tiled variants make of out and lse first: row statistics, once a call. */
#ifndef ADVISOR_STATISTICS_H
#define ADVISOR_STATISTICS_H

#include "strips.h"

/* All buffers and dims of a call. lse and delta [b*h][padded(n)] are the workspace's first part. */
typedef struct {
    const real *q, *k, *v, *out, *log_sums, *gout;
    real *gq, *gk, *gv, *lse, *delta;
    int64_t heads, units, sharing, n, size, block; /* heads, units: query heads, heads of k and v, of all sequences */
    int causal;
} Call;

INLINE int64_t statistics_bytes(const int64_t *dims) { return 2 * bytes_of(dims[0] * dims[1] * padded(dims[5])); }

INLINE Call call_of(void *const *b, const int64_t *dims, void *workspace) {
    real *lse = (real *)workspace, *delta = (real *)((char *)workspace + statistics_bytes(dims) / 2);
    return (Call){(const real *)b[0], (const real *)b[1], (const real *)b[2], (const real *)b[3], (const real *)b[4],
                  (const real *)b[5], (real *)b[6], (real *)b[7], (real *)b[8], lse, delta,
                  dims[0] * dims[1], dims[0] * dims[2], dims[1] / dims[2], dims[5], dims[5] * dims[3], dims[6] * ADV_M,
                  (int)dims[4]};
}

/* Query head h, of all sequences. */
INLINE Head head_of(const Call *c, int64_t h) {
    int64_t at = h * c->size, shared = h / c->sharing * c->size, row = h * padded(c->n);
    return (Head){c->q + at, c->k + shared, c->v + shared, c->gout + at, c->lse + row, c->delta + row,
                  c->n, c->block, c->causal};
}

/* lse in base 2 and delta = gout . out / sqrt(d); zero in the padding. Call it inside the parallel region. */
static void statistics(const Call *c) {
    int64_t wide = padded(c->n);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < c->heads * wide; row++) {
        int64_t i = row % wide, from = row / wide * c->n + i;
        real total = 0, low = 0;
        if (i < c->n) {
            const real *gout = c->gout + from * ADV_D, *out = c->out + from * ADV_D;
            low = c->log_sums[from] * LOG2_E;
#pragma omp simd reduction(+ : total)
            for (int d = 0; d < ADV_D; d++) total += gout[d] * out[d];
        }
        c->lse[row] = low;
        c->delta[row] = total * score_scale();
    }
}

#endif
