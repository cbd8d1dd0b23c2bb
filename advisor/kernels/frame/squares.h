/* Sums and products of rows by whole vectors, several sums at once, with stores that may go past the caches. */
#ifndef ADVISOR_SQUARES_H
#define ADVISOR_SQUARES_H

#include "real.h"

#ifndef ADV_U
#define ADV_U 4 /* vectors at once: their sums do not wait for each other */
#endif

/* A store that does not first read the line it writes to; `to` is aligned to a vector. Where the target has none of this
   width, a plain store. */
INLINE void store_past(real *to, vec value) {
#if defined(__AVX512F__) && ADV_V == 64
    _mm512_stream_ps((float *)to, (__m512)value);
#elif defined(__AVX__) && ADV_V == 32
    _mm256_stream_ps((float *)to, (__m256)value);
#else
    store(to, value);
#endif
}

/* Streamed stores are ordered behind nothing: a barrier of OpenMP does not wait for them. */
INLINE void stores_done(void) {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

/* Sum of squares of x [count]. */
INLINE real squares_of(const real *x, int64_t count) {
    vec sums[ADV_U];
    UNROLL for (int u = 0; u < ADV_U; u++) sums[u] = (vec){0};
    int64_t d = 0;
    for (; d + ADV_U * W <= count; d += ADV_U * W) UNROLL for (int u = 0; u < ADV_U; u++) {
        vec one = load(x + d + u * W);
        sums[u] += one * one;
    }
    for (; d + W <= count; d += W) sums[0] += load(x + d) * load(x + d);
    UNROLL for (int u = 1; u < ADV_U; u++) sums[0] += sums[u];
    real total = lanes_sum(sums[0]);
    for (; d < count; d++) total += x[d] * x[d];
    return total;
}

/* y [count] = x * scale * g. PAST, a constant at every call: store past the caches where y is aligned for it. */
INLINE void scaled(const int PAST, const real *x, const real *g, real scale, int64_t count, real *y) {
    int64_t d = 0;
    vec factor = spread(scale);
    int aligned = (uintptr_t)y % ADV_V == 0;
    if (PAST && aligned)
        for (; d + W <= count; d += W) store_past(y + d, load(x + d) * factor * load(g + d));
    else
        for (; d + W <= count; d += W) store(y + d, load(x + d) * factor * load(g + d));
    for (; d < count; d++) y[d] = x[d] * scale * g[d];
}

#endif
