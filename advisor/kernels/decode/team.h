/* How a team shares decode, for the variants that split the cache: one line of rows, cut into equal shares.

   The caches of all units (a unit is what one thread can do by itself: a query head, or a group of them on one cache)
   are laid end to end into one line of units * n rows; thread t of T takes rows line * t / T up to line * (t + 1) / T.
   So all threads have equal work at any batch, and the same rows at each call. A share covers some units whole, which
   are written out at once, and at most two in part (its first and its last), which become slots. The thread that
   finishes a unit last merges its slots, so nobody waits for anybody: the only barrier is the one that ends the
   parallel region. */
#ifndef DECODE_TEAM_H
#define DECODE_TEAM_H

#include <omp.h>
#include <string.h>

#include "rows.h"

#ifndef ADV_D
#define ADV_D 64 /* head_dim */
#endif

#define SLOT ((ADV_D + 2 + 15) / 16 * 16) /* numbers of one head's part: weighted sum [d], then maximum and total */
#define MAXIMUM ADV_D
#define TOTAL (ADV_D + 1)
#define COUNTER_BYTES 64 /* a cache line each, so that units do not share one */

typedef struct {
    const real *q;       /* [units][heads][d] */
    const stored *k, *v; /* [units / sharing][n][d] */
    real *out;           /* [units][heads][d] */
    int64_t units, n;
    int64_t heads;   /* query heads of one unit */
    int64_t sharing; /* units that read the same cache */
    int64_t block;   /* rows of a block */
    int64_t ahead;   /* rows to prefetch ahead, 0: none */
    real scale;      /* of the scores, times log2(e): softmax is done in powers of two */
    void *workspace;
    int threads; /* shares of the line, at most units * n */
} Decode;

/* Fills part [heads][SLOT] from rows from..to - 1 of one unit's cache. */
typedef void Attend(const Decode *decode, int64_t unit, int64_t from, int64_t to, real *part);

/* Scratch bytes: a counter a unit, then two slots a thread. */
INLINE int64_t team_bytes(int64_t units, int64_t heads, int threads) {
    return units * COUNTER_BYTES + (int64_t)threads * 2 * heads * SLOT * (int64_t)sizeof(real);
}

INLINE int *counter(const Decode *decode, int64_t unit) {
    return (int *)((char *)decode->workspace + unit * COUNTER_BYTES);
}

/* A thread's slot: 1 for the part that holds the first row of its unit, 0 for one that goes on where others began. */
INLINE real *slot(const Decode *decode, int64_t thread, int opens) {
    real *slots = (real *)((char *)decode->workspace + decode->units * COUNTER_BYTES);
    return slots + (thread * 2 + opens) * decode->heads * SLOT;
}

INLINE int64_t share_start(const Decode *decode, int64_t thread) {
    return decode->units * decode->n * thread / decode->threads;
}

/* The thread whose share holds this row of the line. */
INLINE int64_t owner(const Decode *decode, int64_t row) {
    return ((row + 1) * decode->threads - 1) / (decode->units * decode->n);
}

/* out [d] of one head from the parts of threads first..last. */
static void merge_head(const Decode *decode, int64_t first, int64_t last, int64_t head, real *out) {
    real most = LOWEST, total = 0, joined[ADV_D];
    memset(joined, 0, sizeof joined);
    for (int64_t t = first; t <= last; t++) {
        real m = slot(decode, t, t == first)[head * SLOT + MAXIMUM];
        most = m > most ? m : most;
    }
    for (int64_t t = first; t <= last; t++) {
        const real *part = slot(decode, t, t == first) + head * SLOT;
        real weight = exp2_one(part[MAXIMUM] - most);
        total += weight * part[TOTAL];
        for (int d = 0; d < ADV_D; d++) joined[d] += weight * part[d];
    }
    for (int d = 0; d < ADV_D; d++) out[d] = joined[d] / total;
}

static void write_whole(const Decode *decode, int64_t unit, const real *part) {
    real *out = decode->out + unit * decode->heads * ADV_D;
    for (int64_t head = 0; head < decode->heads; head++, part += SLOT, out += ADV_D)
        for (int d = 0; d < ADV_D; d++) out[d] = part[d] / part[TOTAL];
}

/* Says that one part of a unit is done; whoever says so last merges. Acquire and release: the slots are seen whole. */
static void arrive(const Decode *decode, int64_t unit) {
    int64_t first = owner(decode, unit * decode->n), last = owner(decode, unit * decode->n + decode->n - 1);
    if (__atomic_add_fetch(counter(decode, unit), 1, __ATOMIC_ACQ_REL) < last - first + 1) return;
    for (int64_t head = 0; head < decode->heads; head++)
        merge_head(decode, first, last, head, decode->out + (unit * decode->heads + head) * ADV_D);
}

INLINE void do_share(const Decode *decode, int64_t thread, Attend attend) {
    int64_t row = share_start(decode, thread), end = share_start(decode, thread + 1), n = decode->n;
    while (row < end) {
        int64_t unit = row / n, from = row - unit * n, left = end - unit * n, to = left < n ? left : n;
        real *part = slot(decode, thread, from == 0);
        attend(decode, unit, from, to, part);
        if (to - from == n)
            write_whole(decode, unit, part);
        else
            arrive(decode, unit);
        row = unit * n + to;
    }
}

/* One parallel region of `threads` threads; none for one thread, which saves the fork and the join. */
INLINE void do_line(Decode *decode, int threads, Attend attend) {
    int64_t line = decode->units * decode->n;
    decode->threads = (int)(threads < line ? threads : line);
    for (int64_t unit = 0; unit < decode->units; unit++) *counter(decode, unit) = 0;
    if (threads == 1) {
        do_share(decode, 0, attend);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int here = omp_get_thread_num(), team = omp_get_num_threads();
        /* A runtime may give a smaller team than asked for: the shares are then dealt out in turn. */
        for (int t = here; t < decode->threads; t += team) do_share(decode, t, attend);
    }
}

/* One head's scores of a block (in powers of two) to weights, in place. Raises `most` and adds the weights to the lanes
   of `total`, which are summed once at the end. Returns the factor by which earlier sums shrink. Pads s to whole vectors:
   it has room for that. */
INLINE real weigh(real *s, int64_t rows, real *most, vec *total) {
    int64_t padded = (rows + W - 1) & -W;
    for (int64_t j = rows; j < padded; j++) s[j] = LOWEST;
    vec high = load(s);
    for (int64_t j = W; j < padded; j += W) high = larger(high, load(s + j));
    real best = lanes_most(high), shrink = 1;
    if (best > *most) {
        shrink = exp2_one(*most - best);
        *most = best;
        *total *= spread(shrink);
    }
    vec sum = *total, base = spread(*most);
    for (int64_t j = 0; j < padded; j += W) {
        vec weight = exp2_of(load(s + j) - base);
        store(s + j, weight);
        sum += weight;
    }
    *total = sum;
    return shrink;
}

/* Asks for rows [j + ahead, j + ahead + count) of what follows: this stream, then the one that is read next. */
INLINE void fetch(const stored *now, const stored *next, int64_t j, int64_t rows, int64_t ahead, int count) {
    const stored *p = (j + ahead < rows ? now + (j + ahead) * ADV_D : next + (j + ahead - rows) * ADV_D);
    UNROLL for (int i = 0; i < count * ADV_D; i += LINE) __builtin_prefetch(p + i);
}

#endif
