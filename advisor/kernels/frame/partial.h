/* Sums of gk and gv that each thread keeps for itself, and the tree that merges them.

   They lie in the workspace, which is heap, never on the stack: a few MB a thread would end it. Thread 0 sums in the
   outputs themselves. To bound the workspace, heads of k and v are worked off in waves: as many at once as keep all
   threads busy, then their sums are merged. */
#ifndef ADVISOR_PARTIAL_H
#define ADVISOR_PARTIAL_H

#include <omp.h>

#include "call.h"

#define STRIPS_A_THREAD 32 /* strips a wave has for each thread: waiting for the last one costs 2 % of the wave */
#define MERGED_AT_ONCE 1024 /* numbers that a thread adds up before it takes the next */

/* Heads of k and v in one wave. */
INLINE int64_t wave_of(const int64_t *dims, int threads) {
    int64_t strips = dims[1] / dims[2] * strips_of(dims[5]);
    return least(dims[0] * dims[2], (STRIPS_A_THREAD * threads + strips - 1) / strips);
}

/* What the sums of gk and gv of all threads but the first take. */
INLINE int64_t sums_bytes(const int64_t *dims, int threads) {
    return bytes_of(2 * (threads - 1) * wave_of(dims, threads) * dims[5] * ADV_D);
}

/* One quantity, gk or gv: `out` of the wave, and the sums of threads 1, 2, .. behind each other. */
typedef struct {
    real *out, *others;
    int64_t size; /* numbers of the wave */
} Sums;

INLINE real *sums_of(const Sums *sums, int thread) {
    return thread ? sums->others + (thread - 1) * sums->size : sums->out;
}

/* All threads' sums to `out`, in log2(threads) steps: thread t takes those of t + 1, then t + 2, t + 4, each step shared
   by the whole team. Call it inside the parallel region. */
static void merge(const Sums *sums, int threads) {
    int64_t pieces = (sums->size + MERGED_AT_ONCE - 1) / MERGED_AT_ONCE;
    for (int reach = 1; reach < threads; reach *= 2) {
        int64_t pairs = (threads - reach + 2 * reach - 1) / (2 * reach);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < pairs * pieces; task++) {
            int64_t left = task / pieces * 2 * reach, start = task % pieces * MERGED_AT_ONCE;
            real *to = sums_of(sums, left) + start;
            const real *from = sums_of(sums, left + reach) + start;
            int64_t count = least(MERGED_AT_ONCE, sums->size - start);
#pragma omp simd
            for (int64_t x = 0; x < count; x++) to[x] += from[x];
        }
    }
}

/* What a variant does with the strip of query rows first .. first + WIDE - 1 of query head h; gk, gv: its thread's sums. */
typedef void (*AddStrip)(const Call *c, int64_t h, int64_t first, void *scratch, real *gk, real *gv);

/* The heads of k and v from `unit` to `unit + units - 1`, with all their query heads. Head by head,
   for the caches; the longest strips first, so that the last ones of all are short. */
INLINE void add_wave(const Call *c, int64_t unit, int64_t units, real *others, void *scratch, int threads, AddStrip add) {
    int64_t heads = units * c->sharing, strips = strips_of(c->n), size = units * c->size, start = unit * c->size;
    int me = omp_get_thread_num();
    Sums gk = {c->gk + start, others, size}, gv = {c->gv + start, others + (threads - 1) * size, size};
    memset(sums_of(&gk, me), 0, size * sizeof(real));
    memset(sums_of(&gv, me), 0, size * sizeof(real));
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < heads * strips; task++) {
        int64_t h = task / strips, first = (strips - 1 - task % strips) * WIDE, at = h / c->sharing * c->size;
        add(c, unit * c->sharing + h, first, scratch, sums_of(&gk, me) + at, sums_of(&gv, me) + at);
    }
    merge(&gk, threads);
    merge(&gv, threads);
}

/* All of a call, wave by wave. others: sums_bytes of workspace. Call it inside the parallel region. */
INLINE void add_in_waves(const Call *c, int64_t wave, void *others, void *scratch, int threads, AddStrip add) {
    for (int64_t unit = 0; unit < c->units; unit += wave)
        add_wave(c, unit, least(wave, c->units - unit), (real *)others, scratch, threads, add);
}

/* A query strip that adds to its thread's sums: packed q and gout, gq^T, and blocks of scores and their gradients. */
typedef struct {
    real *q, *gout, *gq, *s, *g;
} Adder;

INLINE int64_t adder_bytes(int64_t block) { return bytes_of(3 * PANELS + 2 * block * WIDE); }

INLINE Adder adder_in(void *scratch, int64_t block) {
    real *at = (real *)scratch;
    return (Adder){at, at + PANELS, at + 2 * PANELS, at + 3 * PANELS, at + 3 * PANELS + block * WIDE};
}

/* gq of query rows first .. first + WIDE - 1 and what they add to gk and gv; q and gout are packed. */
static void add_packed_strip(const Head *head, int64_t first, const Adder *a, real *gq, real *gk, real *gv) {
    int64_t rows = least(WIDE, head->n - first), end = head->causal ? first + rows : head->n;
    memset(a->gq, 0, PANELS * sizeof(real));
    for (int64_t j = 0; j < end; j += head->block) {
        int64_t count = least(head->block, end - j);
        Left p = {a->s, WIDE, 1}, gs = {a->g, WIDE, 1};
        across(head->k + j * ADV_D, count, a->q, a->s);
        across(head->v + j * ADV_D, count, a->gout, a->g);
        if (head->causal && j + count > first) mask_queries(a->s, count, j, first);
        weigh_queries(a->s, a->g, count, head->lse + first, head->delta + first);
        onto(head->k + j * ADV_D, count, a->g, a->gq);
        along(p, count, head->gout + first * ADV_D, rows, gv + j * ADV_D);
        along(gs, count, head->q + first * ADV_D, rows, gk + j * ADV_D);
    }
    unpack(a->gq, rows, 0, gq + first * ADV_D);
}

#endif
