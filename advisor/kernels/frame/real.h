/* Vectors of ADV_V bytes of ADV_REAL by the vector extensions of gcc and clang, and 2^x of them.

   Any ADV_V compiles on any target; one wider than the target's registers becomes several of them. Arrays that hold
   register tiles are indexed by constants only, after full unrolling: that is why every loop over a tile carries UNROLL.
   Without it the compilers keep the tile in memory and lose a factor of four. */
#ifndef ADVISOR_REAL_H
#define ADVISOR_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "advisor.h"

#ifndef ADV_V
#define ADV_V 32 /* bytes of one vector: 32 (AVX2) or 64 (AVX-512) */
#endif

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif
#define INLINE static inline __attribute__((always_inline))

/* Compilers warn that passing vectors wider than the target's is unstable; here none is passed, all is inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef ADV_REAL real;
#define REAL_BYTES ((int)sizeof(real))
#define W ((int)(ADV_V / sizeof(real))) /* numbers in one vector */
#define IS_DOUBLE (sizeof(real) == 8)

/* Loads are unaligned ones: rows start where the caller's array says, and they are no dearer on aligned data. */
typedef real vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));
typedef float float_vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));
typedef int32_t int_vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));
typedef double double_vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));
typedef int64_t long_vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));

INLINE vec load(const real *p) { return *(const vec *)p; }
INLINE void store(real *p, vec x) { *(vec *)p = x; }

/* One number in every lane. Subtracting zero keeps the number as it is, -0 included. */
INLINE vec spread(real x) { return x - (vec){0}; }

/* Keeps a value in its register. Without it gcc loads a number anew for every FMA that uses it, and the loads, two a
   cycle like the FMAs, become the limit. */
#if (defined(__AVX512F__) && ADV_V == 64) || (defined(__AVX__) && ADV_V == 32) /* a vec is one register */
INLINE vec held(vec x) {
    __asm__("" : "+v"(x));
    return x;
}
#else
INLINE vec held(vec x) { return x; }
#endif

/* The larger of each pair of lanes. Compilers do not make a maximum instruction of the general form. */
INLINE vec larger(vec x, vec y) {
#if defined(__AVX512F__) && ADV_V == 64
    return IS_DOUBLE ? (vec)_mm512_max_pd((__m512d)x, (__m512d)y) : (vec)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined(__AVX__) && ADV_V == 32
    return IS_DOUBLE ? (vec)_mm256_max_pd((__m256d)x, (__m256d)y) : (vec)_mm256_max_ps((__m256)x, (__m256)y);
#else
    for (int i = 0; i < W; i++) x[i] = x[i] > y[i] ? x[i] : y[i];
    return x;
#endif
}

INLINE real lanes_sum(vec x) {
    real total = 0;
    UNROLL for (int i = 0; i < W; i++) total += x[i];
    return total;
}

#define LOG2_E ((real)1.4426950408889634074)
#define LN_2 ((real)0.69314718055994530942)
#define LOWEST ((real)-1e30) /* stands for minus infinity, which -ffinite-math-only makes undefined */

/* 2^x for x up to a little over 0, the powers of two that softmax needs.

   Relative error under 3 unit roundoffs (a test measures it) from -125 (float) or -1021 (double) up to 0. Below, the
   value is that of the limit: small enough to add nothing to a softmax whose largest weight is 1. The polynomials
   approximate 2^f on [-1/2, 1/2]: degree 6, minimax, 1.9e-9 (float); degree 11 through the Chebyshev nodes, 2e-17
   (double). The first is summed in halves (Estrin), since a chain of FMAs leaves the units idle. Adding MAGIC rounds x
   to the nearest integer and leaves that integer in the low bits, which then go into the exponent. No libm, whose calls
   stop vectorisation. */
#define MAGIC_FLOAT 12582912.0f          /* 1.5 * 2^23 */
#define MAGIC_DOUBLE 6755399441055744.0 /* 1.5 * 2^52 */

INLINE float_vec exp2_float(float_vec x) {
    float_vec shifted = x + MAGIC_FLOAT;
    float_vec f = x - (shifted - MAGIC_FLOAT), f2 = f * f, f4 = f2 * f2;
    float_vec low = 1.0f + 6.931471824645996e-1f * f;
    float_vec middle = 2.4022646248340607e-1f + 5.550328642129898e-2f * f;
    float_vec high = 9.618489071726799e-3f + 1.3399930903688073e-3f * f;
    float_vec p = (low + middle * f2) + (high + 1.534581242594868e-4f * f2) * f4;
    return (float_vec)((int_vec)p + ((int_vec)shifted << 23));
}

INLINE double_vec exp2_double(double_vec x) {
    double_vec shifted = x + MAGIC_DOUBLE;
    double_vec f = x - (shifted - MAGIC_DOUBLE), f2 = f * f, f4 = f2 * f2;
    double_vec a = 1.0 + 0.6931471805599453 * f + (0.24022650695910158 + 0.055504108664821625 * f) * f2;
    double_vec b = 0.009618129107587256 + 0.001333355814640647 * f + (0.00015403530463724353 + 1.5252733841556773e-05 * f) * f2;
    double_vec c = 1.3215432535912375e-06 + 1.0178057087733941e-07 * f + (7.074194297288521e-09 + 4.4558179083360645e-10 * f) * f2;
    double_vec p = a + (b + c * f4) * f4;
    return (double_vec)((long_vec)p + ((long_vec)shifted << 52));
}

INLINE vec exp2_of(vec x) {
    x = larger(x, spread(IS_DOUBLE ? (real)-1021 : (real)-125));
    return IS_DOUBLE ? (vec)exp2_double((double_vec)x) : (vec)exp2_float((float_vec)x);
}

/* The same for one number. */
INLINE real exp2_one(real x) { return exp2_of(spread(x))[0]; }

#endif
