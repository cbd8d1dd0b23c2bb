/* What the register-tiled gradients of attention share.

   A strip is WIDE rows of q, or of k and v, that lie across the vector lanes: packed as STRIPS panels [d][STRIP], so
   that every product reads it contiguously. The other side is walked where it lies, a block of rows at a time. Scores
   and their gradients of one block are small matrices [block][WIDE]. Three products make everything:

     across  [rows][WIDE] = a [rows][d] times a packed strip               scores, gP
     onto    packed strip += a^T times w [rows][WIDE]                      gq^T of k and GS^T; gv^T of gout and P
     along   rows of [d]  += w^T times b [depth][d], vectors along d       gk of GS^T and q; gv of P^T and gout

   The scale 1 / sqrt(d) is in gout's (or v's) panels and in delta, so that GS here is GS / sqrt(d), and log2 e in q's
   (or k's), so that weights are powers of two. Letters as in attention.py. */
#ifndef ADVISOR_STRIPS_H
#define ADVISOR_STRIPS_H

#include "tile.h"

#ifndef ADV_D
#define ADV_D 64 /* head_dim */
#endif
#ifndef ADV_M
#define ADV_M 6 /* rows in one tile */
#endif
#ifndef ADV_N
#define ADV_N 2 /* vectors in one tile */
#endif
#ifndef STRIPS
#define STRIPS 1 /* tiles side by side in one strip */
#endif

#define STRIP (ADV_N * W)
#define WIDE (STRIPS * STRIP)
#define PANELS (ADV_D * WIDE) /* numbers in a packed strip */

/* One query head. lse is in base 2; delta has the factor 1 / sqrt(d); both have padded(n) numbers. */
typedef struct {
    const real *q, *k, *v, *gout, *lse, *delta;
    int64_t n, block; /* block: rows at once */
    int causal;
} Head;

INLINE int64_t strips_of(int64_t n) { return (n + WIDE - 1) / WIDE; }
INLINE int64_t padded(int64_t n) { return strips_of(n) * WIDE; }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE real score_scale(void) { return 1 / (real)sqrt((double)ADV_D); }

/* Bytes of so many numbers, so that what follows is aligned to a cache line. */
INLINE int64_t bytes_of(int64_t numbers) { return (numbers * REAL_BYTES + 63) & -64; }

/* Strip = rows [rows][d] * factor; what is over is zero. */
static void pack(const real *rows_in, int64_t rows, real factor, real *to) {
    for (int x = 0; x < STRIPS; x++) {
        int64_t left = most_of(0, least(STRIP, rows - x * STRIP));
        transpose_in(rows_in + x * STRIP * ADV_D, left, ADV_D, STRIP, factor, to + x * ADV_D * STRIP);
    }
}

/* Rows [rows][d] = strip * factor [WIDE] (NULL: 1). */
static void unpack(const real *strip, int64_t rows, const real *factor, real *to) {
    for (int64_t r = 0; r < rows; r++) {
        const real *from = strip + r / STRIP * ADV_D * STRIP + r % STRIP;
        real one = factor ? factor[r] : 1;
        for (int d = 0; d < ADV_D; d++) to[r * ADV_D + d] = from[d * STRIP] * one;
    }
}

static void across(const real *a, int64_t rows, const real *strip, real *to) {
    Left left = {a, ADV_D, 1};
    for (int x = 0; x < STRIPS; x++)
        tiles(ADV_M, ADV_N, ZERO, rows, left, strip + x * ADV_D * STRIP, STRIP, ADV_D, to + x * STRIP, WIDE, 0);
}

/* start ADD, or SCALED by factor [WIDE]. */
INLINE void onto_from(const int start, const real *a, int64_t rows, const real *w, real *strip, const real *factor) {
    for (int x = 0; x < STRIPS; x++) {
        const real *b = w + x * STRIP, *by = factor ? factor + x * STRIP : 0;
        real *to = strip + x * ADV_D * STRIP;
        int d = 0;
        for (; d + ADV_M <= ADV_D; d += ADV_M) {
            Left left = {a + d, 1, ADV_D};
            tile(ADV_M, ADV_N, start, left, b, WIDE, rows, to + d * STRIP, STRIP, by);
        }
        if (ADV_D % ADV_M) {
            Left left = {a + d, 1, ADV_D};
            tile(ADV_D % ADV_M, ADV_N, start, left, b, WIDE, rows, to + d * STRIP, STRIP, by);
        }
    }
}

static void onto(const real *a, int64_t rows, const real *w, real *strip) { onto_from(ADD, a, rows, w, strip, 0); }

/* to [rows][d] += w times b [depth][d], w walked by strides; head_dim is a multiple of W. */
static void along(Left w, int64_t rows, const real *b, int64_t depth, real *to) {
    int d = 0;
    for (; d + STRIP <= ADV_D; d += STRIP)
        tiles(ADV_M, ADV_N, ADD, rows, w, b + d, ADV_D, depth, to + d, ADV_D, 0);
    if (ADV_D % STRIP) tiles(ADV_M, ADV_D % STRIP / W, ADD, rows, w, b + d, ADV_D, depth, to + d, ADV_D, 0);
}

/* s becomes P and g, which held gP, becomes GS: query rows across the lanes, rows of k and v below each other. */
static void weigh_queries(real *s, real *g, int64_t rows, const real *lse, const real *delta) {
    for (int x = 0; x < WIDE; x += W) {
        vec low = load(lse + x), mean = load(delta + x);
        for (int64_t r = 0; r < rows; r++) {
            vec weight = exp2_of(load(s + r * WIDE + x) - low);
            store(s + r * WIDE + x, weight);
            store(g + r * WIDE + x, weight * (load(g + r * WIDE + x) - mean));
        }
    }
}

/* The same with rows of k and v across the lanes, query rows below each other. */
static void weigh_keys(real *s, real *g, int64_t rows, const real *lse, const real *delta) {
    for (int64_t r = 0; r < rows; r++) {
        vec low = spread(lse[r]), mean = spread(delta[r]);
        UNROLL for (int x = 0; x < WIDE; x += W) {
            vec weight = exp2_of(load(s + r * WIDE + x) - low);
            store(s + r * WIDE + x, weight);
            store(g + r * WIDE + x, weight * (load(g + r * WIDE + x) - mean));
        }
    }
}

/* Causal: row j + r of k counts for query rows first + lane >= j + r only. */
static void mask_queries(real *s, int64_t rows, int64_t j, int64_t first) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t lane = 0; lane < WIDE && first + lane < j + r; lane++) s[r * WIDE + lane] = LOWEST;
}

/* Causal: query row i + r looks at rows first + lane <= i + r of k only. */
static void mask_keys(real *s, int64_t rows, int64_t i, int64_t first) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t lane = most_of(0, i + r - first + 1); lane < WIDE; lane++) s[r * WIDE + lane] = LOWEST;
}

#endif
