/* Vectors of ADV_W floats by the vector extensions of gcc and clang, and register tiles of them.

   The arrays that hold register tiles are indexed by constants only, after full unrolling: that is why every loop over
   a tile carries UNROLL. Without it the compilers keep the tile in memory and lose a factor of four. */
#ifndef DECODE_VEC_H
#define DECODE_VEC_H

#include <stdint.h>

#ifndef ADV_W
#define ADV_W 8 /* floats in one vector: 8 (AVX2) or 16 (AVX-512) */
#endif

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))

/* Compilers warn that passing vectors wider than the target's is unstable; here none is passed, all is inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

/* Vector registers that the target has: a tile that needs more of them spills. */
#ifdef __AVX512F__
#define REGISTERS 32
#else
#define REGISTERS 16
#endif

/* aligned(4): rows start where the caller's array says, so loads are unaligned ones, no dearer on aligned data. */
typedef float vec __attribute__((vector_size(4 * ADV_W), aligned(4), may_alias));
typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float vec8 __attribute__((vector_size(32), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec x) { *(vec *)p = x; }

/* One number in every lane. Subtracting zero keeps the number as it is, -0 included. */
INLINE vec spread(float x) { return x - (vec){0}; }

/* Keeps a loaded vector in its register. Without it gcc loads it anew for every FMA that uses it, and the loads, two a
   cycle like the FMAs, become the limit. */
#if defined(__AVX512F__) || (defined(__AVX__) && ADV_W == 8) /* a vec is one register */
INLINE vec held(vec x) {
    __asm__("" : "+v"(x));
    return x;
}
#else
INLINE vec held(vec x) { return x; }
#endif

INLINE float sum(vec x) {
    float total = 0;
    UNROLL for (int i = 0; i < ADV_W; i++) total += x[i];
    return total;
}

/* The sums of four vectors at once, to out[0..3]. Pairs are added within 128-bit lanes first: a blend and one shuffle
   a pair, then two shuffles, then the lanes are folded; about 12 instructions against 4 x 7 for single sums. */
#if ADV_W == 8
#define BLEND 0, 1, 10, 11, 4, 5, 14, 15
#define CROSS 2, 3, 8, 9, 6, 7, 12, 13
#define EVEN 0, 2, 8, 10, 4, 6, 12, 14
#define ODD 1, 3, 9, 11, 5, 7, 13, 15
#else
#define BLEND 0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30, 31
#define CROSS 2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15, 28, 29
#define EVEN 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define ODD 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#endif

INLINE void sum4(vec x0, vec x1, vec x2, vec x3, float *out) {
    vec a = __builtin_shufflevector(x0, x1, BLEND) + __builtin_shufflevector(x0, x1, CROSS);
    vec b = __builtin_shufflevector(x2, x3, BLEND) + __builtin_shufflevector(x2, x3, CROSS);
    vec c = __builtin_shufflevector(a, b, EVEN) + __builtin_shufflevector(a, b, ODD);
#if ADV_W == 16
    vec8 h = __builtin_shufflevector(c, c, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(c, c, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    vec8 h = c;
#endif
    *(vec4 *)out = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
}

#endif
