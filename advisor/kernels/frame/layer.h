/* Sizes of a transformer block, and where its q, k and v lie. Letters as in transformer.py: i a row, d an element of it,
   h a head, e an element of a head, p an element of all heads, f an element within the MLP. */
#ifndef ADVISOR_LAYER_H
#define ADVISOR_LAYER_H

#include <stdint.h>
#include <string.h>

#include "advisor.h"

typedef ADV_REAL real;

/* own: elements of all heads of q; all: of q, k and v. */
typedef struct {
    int64_t batch, heads, kv_heads, e, d, f, causal, n, rows, own, all;
} Layer;

/* dims: batch, heads, kv_heads, head_dim, d_model, d_ff, causal, n. */
static inline Layer layer_of(const int64_t *dims) {
    int64_t own = dims[1] * dims[3], all = own + 2 * dims[2] * dims[3];
    return (Layer){dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], dims[6], dims[7], dims[0] * dims[7], own, all};
}

/* q [b][h][n][e], k, v [b][g][n][e]: a head's rows together, as attention reads them. */
typedef struct {
    real *q, *k, *v;
} Heads;

/* Numbers of all three. */
static inline int64_t heads_numbers(const Layer *l) { return l->rows * l->all; }

static inline Heads heads_in(const Layer *l, real *at) {
    real *k = at + l->rows * l->own;
    return (Heads){at, k, k + l->rows * l->kv_heads * l->e};
}

/* Where element p of row i of all sequences lies; the rest of its head follows it. */
static inline real *place(const Layer *l, const Heads *to, int64_t i, int64_t p) {
    int64_t h = p / l->e, heads = l->heads;
    real *part = to->q;
    if (h >= l->heads) {
        h -= l->heads, heads = l->kv_heads, part = to->k;
        if (h >= l->kv_heads) h -= l->kv_heads, part = to->v;
    }
    return part + ((i / l->n * heads + h) * l->n + i % l->n) * l->e + p % l->e;
}

/* Elements p .. p + count - 1 of row i go to their heads. */
static inline void split_row(const Layer *l, const real *from, int64_t i, int64_t p, int64_t count, const Heads *to) {
    for (int64_t end = p + count; p < end;) {
        int64_t some = l->e - p % l->e < end - p ? l->e - p % l->e : end - p;
        memcpy(place(l, to, i, p), from, some * sizeof(real));
        from += some, p += some;
    }
}

/* The same back: `count` elements of row i, the first ones of all, from their heads. */
static inline void join_row(const Layer *l, const Heads *from, int64_t i, int64_t count, real *to) {
    for (int64_t p = 0; p < count; p += l->e) memcpy(to + p, place(l, from, i, p), l->e * sizeof(real));
}

#endif
