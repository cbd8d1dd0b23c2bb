/* Gradients without sums between threads: the owner of a strip of query rows writes gq, the owner of a strip of rows of
   k and v writes gk and gv. The letters and products are those of strips.h. */
#ifndef ADVISOR_OWNERS_H
#define ADVISOR_OWNERS_H

#include "strips.h"

/* What the owner of a strip keeps in its thread's scratch: strips, then the blocks of scores and their gradients. */
typedef struct {
    real *a, *b, *to_a, *to_b, *s, *g;
} Owner;

INLINE int64_t owner_bytes(int64_t block) { return bytes_of(4 * PANELS + 2 * block * WIDE); }

INLINE Owner owner_in(void *scratch, int64_t block) {
    real *at = (real *)scratch;
    return (Owner){at, at + PANELS, at + 2 * PANELS, at + 3 * PANELS, at + 4 * PANELS, at + 4 * PANELS + block * WIDE};
}

/* gq of query rows first .. first + WIDE - 1, fewer at the end, whose q and gout are packed in o->a and o->b. */
static void own_packed_queries(const Head *head, int64_t first, const Owner *o, real *gq) {
    int64_t rows = least(WIDE, head->n - first), end = head->causal ? first + rows : head->n;
    memset(o->to_a, 0, PANELS * sizeof(real));
    for (int64_t j = 0; j < end; j += head->block) {
        int64_t count = least(head->block, end - j);
        across(head->k + j * ADV_D, count, o->a, o->s);
        across(head->v + j * ADV_D, count, o->b, o->g);
        if (head->causal && j + count > first) mask_queries(o->s, count, j, first);
        weigh_queries(o->s, o->g, count, head->lse + first, head->delta + first);
        onto(head->k + j * ADV_D, count, o->g, o->to_a);
    }
    unpack(o->to_a, rows, 0, gq + first * ADV_D);
}

static inline void own_queries(const Head *head, int64_t first, const Owner *o, real *gq) {
    int64_t rows = least(WIDE, head->n - first);
    pack(head->q + first * ADV_D, rows, score_scale() * LOG2_E, o->a);
    pack(head->gout + first * ADV_D, rows, score_scale(), o->b);
    own_packed_queries(head, first, o, gq);
}

/* Begin and end of a strip of rows of k and v: in between, add_queries for each query head that shares them. */
static inline void pack_keys(const Head *head, int64_t first, const Owner *o) {
    int64_t rows = least(WIDE, head->n - first);
    pack(head->k + first * ADV_D, rows, score_scale() * LOG2_E, o->a);
    pack(head->v + first * ADV_D, rows, score_scale(), o->b);
    memset(o->to_a, 0, 2 * PANELS * sizeof(real)); /* to_b lies behind to_a */
}

static inline void unpack_keys(const Head *head, int64_t first, const Owner *o, real *gk, real *gv) {
    int64_t rows = least(WIDE, head->n - first);
    unpack(o->to_a, rows, 0, gk + first * ADV_D);
    unpack(o->to_b, rows, 0, gv + first * ADV_D);
}

/* What the query rows of one head add to gk and gv of rows first .. first + WIDE - 1. kept [n][WIDE]: GS of this strip
   is written there for whoever makes gq of it; NULL: it is not kept. */
static void add_queries(const Head *head, int64_t first, const Owner *o, real *kept) {
    for (int64_t i = head->causal ? first : 0; i < head->n; i += head->block) {
        int64_t count = least(head->block, head->n - i);
        real *g = kept ? kept + i * WIDE : o->g;
        across(head->q + i * ADV_D, count, o->a, o->s);
        across(head->gout + i * ADV_D, count, o->b, g);
        if (head->causal && i < first + WIDE) mask_keys(o->s, count, i, first);
        weigh_keys(o->s, g, count, head->lse + i, head->delta + i);
        onto(head->gout + i * ADV_D, count, o->s, o->to_b);
        onto(head->q + i * ADV_D, count, g, o->to_a);
    }
}

#endif
