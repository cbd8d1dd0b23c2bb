/* One call of a tiled gradient kernel: its buffers, its sizes, and one query head of it. */
#ifndef ADVISOR_CALL_H
#define ADVISOR_CALL_H

#include "strips.h"

/* out is read by backward and written by fused. lse and delta [b*h][padded(n)], as Head wants them, are the workspace's
   first part and made by the call itself. */
typedef struct {
    const real *q, *k, *v, *gout;
    real *out, *gq, *gk, *gv, *lse, *delta;
    int64_t heads, units, sharing, n, size, block; /* heads, units: query heads, heads of k and v, of all sequences */
    int causal;
} Call;

INLINE int64_t statistics_bytes(const int64_t *dims) { return 2 * bytes_of(dims[0] * dims[1] * padded(dims[5])); }

/* A call whose buffers q, k, v, out, gout, gq, gk, gv are yet to be set. */
INLINE Call sized_call(const int64_t *dims, void *workspace) {
    Call c = {0};
    c.lse = (real *)workspace;
    c.delta = (real *)((char *)workspace + statistics_bytes(dims) / 2);
    c.heads = dims[0] * dims[1], c.units = dims[0] * dims[2], c.sharing = dims[1] / dims[2];
    c.n = dims[5], c.size = dims[5] * ADV_D, c.block = dims[6] * ADV_M, c.causal = (int)dims[4];
    return c;
}

/* Query head h, of all sequences. */
INLINE Head head_of(const Call *c, int64_t h) {
    int64_t at = h * c->size, shared = h / c->sharing * c->size, row = h * padded(c->n);
    return (Head){c->q + at, c->k + shared, c->v + shared, c->gout + at, c->lse + row, c->delta + row,
                  c->n, c->block, c->causal};
}

#endif
