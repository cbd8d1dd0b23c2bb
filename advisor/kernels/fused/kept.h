/* Forward and backward of one strip of query rows with its weights kept in between: [rows of k][WIDE], against each
   row's maximum but not divided by the total. The backward pass divides gout instead, once a strip:

     P gP = weight (gP part)    part = 1 / total    gv[j] = sum over i of weight[i,j] (gout[i] part[i]) */
#ifndef ADVISOR_KEPT_H
#define ADVISOR_KEPT_H

#include "attend.h"
#include "partial.h"

/* A thread's scratch: the packed side, what is summed, a block of GS, gout * part as rows, part and delta. */
typedef struct {
    real *packed, *sums, *g, *rows, *part, *delta;
} Keeper;

INLINE int64_t keeper_bytes(int64_t block) { return bytes_of(3 * PANELS + (block + 2) * WIDE); }

INLINE Keeper keeper_in(void *scratch, int64_t block) {
    real *at = (real *)scratch, *g = at + 3 * PANELS, *part = g + block * WIDE;
    return (Keeper){at, at + PANELS, g, at + 2 * PANELS, part, part + WIDE};
}

/* All scores of a strip, and each query row's maximum. */
static void keep_scores(const Head *head, int64_t first, int64_t end, const real *q, real *p, real *most) {
    for (int x = 0; x < WIDE; x++) most[x] = LOWEST;
    for (int64_t j = 0; j < end; j += head->block) {
        int64_t count = least(head->block, end - j);
        real *s = p + j * WIDE;
        across(head->k + j * ADV_D, count, q, s);
        if (head->causal && j + count > first) mask_queries(s, count, j, first);
        for (int x = 0; x < WIDE; x += W) {
            vec best = load(most + x);
            for (int64_t r = 0; r < count; r++) best = larger(best, load(s + r * WIDE + x));
            store(most + x, best);
        }
    }
}

/* Scores to weights; the total grows. */
static void weigh_kept(real *s, int64_t rows, const real *most, real *total) {
    for (int x = 0; x < WIDE; x += W) {
        vec best = load(most + x), sum = load(total + x);
        for (int64_t r = 0; r < rows; r++) {
            vec weight = exp2_of(load(s + r * WIDE + x) - best);
            store(s + r * WIDE + x, weight);
            sum += weight;
        }
        store(total + x, sum);
    }
}

/* out of query rows first .. first + WIDE - 1, their weights in p [end][WIDE], and 1 / total in part [WIDE]. */
static void attend_kept(const Head *head, int64_t first, const Keeper *t, real *p, real *part, real *out) {
    int64_t rows = least(WIDE, head->n - first), end = head->causal ? first + rows : head->n;
    real most[WIDE];
    pack(head->q + first * ADV_D, rows, score_scale() * LOG2_E, t->packed);
    keep_scores(head, first, end, t->packed, p, most);
    memset(t->sums, 0, PANELS * sizeof(real));
    memset(part, 0, WIDE * sizeof(real));
    for (int64_t j = 0; j < end; j += head->block) {
        int64_t count = least(head->block, end - j);
        weigh_kept(p + j * WIDE, count, most, part);
        onto(head->v + j * ADV_D, count, p + j * WIDE, t->sums);
    }
    for (int x = 0; x < WIDE; x++) part[x] = 1 / part[x];
    unpack(t->sums, rows, part, out + first * ADV_D);
}

/* g, which holds gP part, becomes GS. */
static void weigh_gradients(const real *p, real *g, int64_t rows, const real *delta) {
    for (int x = 0; x < WIDE; x += W) {
        vec mean = load(delta + x);
        for (int64_t r = 0; r < rows; r++)
            store(g + r * WIDE + x, load(p + r * WIDE + x) * (load(g + r * WIDE + x) - mean));
    }
}

/* gq of the strip, and what it adds to gk and gv. Backwards, since the weights made last are still in cache. */
static void add_kept_strip(const Head *head, int64_t first, const Keeper *t, const real *p, const real *part,
                           const real *out, real *gq, real *gk, real *gv) {
    int64_t rows = least(WIDE, head->n - first), end = head->causal ? first + rows : head->n;
    const real *gout = head->gout + first * ADV_D;
    strip_delta(gout, out + first * ADV_D, rows, part, t->delta);
    for (int64_t r = 0; r < rows; r++)
        for (int d = 0; d < ADV_D; d++) t->rows[r * ADV_D + d] = gout[r * ADV_D + d] * part[r];
    pack(t->rows, rows, score_scale(), t->packed);
    memset(t->sums, 0, PANELS * sizeof(real));
    for (int64_t j = (end - 1) / head->block * head->block; j >= 0; j -= head->block) {
        int64_t count = least(head->block, end - j);
        Left weights = {p + j * WIDE, WIDE, 1}, gs = {t->g, WIDE, 1};
        across(head->v + j * ADV_D, count, t->packed, t->g);
        weigh_gradients(p + j * WIDE, t->g, count, t->delta);
        onto(head->k + j * ADV_D, count, t->g, t->sums);
        along(weights, count, t->rows, rows, gv + j * ADV_D);
        along(gs, count, head->q + first * ADV_D, rows, gk + j * ADV_D);
    }
    unpack(t->sums, rows, 0, gq + first * ADV_D);
}

#endif
