/* Rows of the cache: from their storage into vectors of what is computed in, and sums and maxima over lanes.

   float64 and float32 are loaded as they are. bfloat16 is the upper half of a float32; float16 is converted by the
   instruction where the target has it, else by arithmetic, which is exact too. No infinities and no NaN. */
#ifndef DECODE_ROWS_H
#define DECODE_ROWS_H

#include "real.h"

/* Vector registers that the target has: a tile that needs more of them spills. */
#ifdef __AVX512F__
#define REGISTERS (ADV_V == 64 ? 32 : 16)
#else
#define REGISTERS 16
#endif

/* --- storage --- */

#if ADV_DTYPE == ADV_BFLOAT16 || ADV_DTYPE == ADV_FLOAT16
typedef uint16_t stored;
typedef uint16_t stored_vec __attribute__((vector_size(ADV_V / 2), aligned(2), may_alias));
typedef uint32_t bits_vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));

/* By the target's instruction where it has one: gcc makes a detour through halves of the general form. */
#if defined(__AVX512F__) && ADV_V == 64
INLINE bits_vec wide_bits(const stored *p) {
    return (bits_vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
#elif defined(__AVX2__) && ADV_V == 32
INLINE bits_vec wide_bits(const stored *p) {
    return (bits_vec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
#else
INLINE bits_vec wide_bits(const stored *p) { return __builtin_convertvector(*(const stored_vec *)p, bits_vec); }
#endif
#else
typedef real stored;
#endif

#define LINE ((int)(64 / sizeof(stored))) /* numbers in a cache line */

#if ADV_DTYPE == ADV_BFLOAT16
INLINE real widen_one(stored x) {
    uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

INLINE vec widen(const stored *p) { return (vec)(wide_bits(p) << 16); }
#elif ADV_DTYPE == ADV_FLOAT16
/* Exponent and fraction move into place as they are, which makes the exponent 127 - 15 too small, in a subnormal too. */
#define REBIAS 0x1p112f

INLINE real widen_one(stored x) {
    uint32_t bits = (uint32_t)(x & 0x7FFF) << 13;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    wide *= REBIAS;
    return x & 0x8000 ? -wide : wide;
}

#if defined(__AVX512F__) && ADV_V == 64
INLINE vec widen(const stored *p) { return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
#elif defined(__F16C__) && ADV_V == 32
INLINE vec widen(const stored *p) { return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
#elif defined(__F16C__)
INLINE vec widen(const stored *p) {
    vec wide;
    *(__m256_u *)&wide = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
    *((__m256_u *)&wide + 1) = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1));
    return wide;
}
#else
INLINE vec widen(const stored *p) {
    bits_vec bits = wide_bits(p);
    vec size = (vec)((bits & 0x7FFF) << 13) * REBIAS;
    return (vec)((bits_vec)size | (bits & 0x8000) << 16);
}
#endif
#else
INLINE real widen_one(stored x) { return x; }
INLINE vec widen(const stored *p) { return load(p); }
#endif

/* --- over the lanes of vectors --- */

/* Orders of lanes. Halves are swapped down to neighbours for a maximum; see sum4 for the rest. */
#define ORDER(...) __VA_ARGS__
#if ADV_DTYPE == ADV_FLOAT64 && ADV_V == 32
#define SWAP_2 ORDER(2, 3, 0, 1)
#define SWAP_1 ORDER(1, 0, 3, 2)
#elif ADV_DTYPE == ADV_FLOAT64
#define LOW ORDER(0, 1, 2, 3)
#define HIGH ORDER(4, 5, 6, 7)
#define SWAP_4 ORDER(4, 5, 6, 7, 0, 1, 2, 3)
#define SWAP_2 ORDER(2, 3, 0, 1, 6, 7, 4, 5)
#define SWAP_1 ORDER(1, 0, 3, 2, 5, 4, 7, 6)
#elif ADV_V == 32
#define SWAP_4 ORDER(4, 5, 6, 7, 0, 1, 2, 3)
#define SWAP_2 ORDER(2, 3, 0, 1, 6, 7, 4, 5)
#define SWAP_1 ORDER(1, 0, 3, 2, 5, 4, 7, 6)
#define BLEND ORDER(0, 1, 10, 11, 4, 5, 14, 15)
#define CROSS ORDER(2, 3, 8, 9, 6, 7, 12, 13)
#define EVEN ORDER(0, 2, 8, 10, 4, 6, 12, 14)
#define ODD ORDER(1, 3, 9, 11, 5, 7, 13, 15)
#else
#define LOW ORDER(0, 1, 2, 3, 4, 5, 6, 7)
#define HIGH ORDER(8, 9, 10, 11, 12, 13, 14, 15)
#define SWAP_8 ORDER(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define SWAP_4 ORDER(4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define SWAP_2 ORDER(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define SWAP_1 ORDER(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#define BLEND ORDER(0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30, 31)
#define CROSS ORDER(2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15, 28, 29)
#define EVEN ORDER(0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30)
#define ODD ORDER(1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31)
#endif
#define MIXED(x, y, order) __builtin_shufflevector(x, y, order)

/* The largest lane. */
INLINE real lanes_most(vec x) {
#ifdef SWAP_8
    x = larger(x, MIXED(x, x, SWAP_8));
#endif
#ifdef SWAP_4
    x = larger(x, MIXED(x, x, SWAP_4));
#endif
    x = larger(x, MIXED(x, x, SWAP_2));
    return larger(x, MIXED(x, x, SWAP_1))[0];
}

typedef real vec32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef real four __attribute__((vector_size(4 * sizeof(real)), aligned(4), may_alias));

/* The sum of both halves of a vector of 64 bytes; one of 32 as it is. */
INLINE vec32 folded(vec x) {
#ifdef LOW
    return MIXED(x, x, LOW) + MIXED(x, x, HIGH);
#else
    return x;
#endif
}

/* The sums of four vectors at once, to out[0..3]. Pairs are added within 128-bit lanes first, then the lanes are folded:
   about 12 instructions in float32 against 4 x 7 for single sums. */
INLINE void sum4(vec x0, vec x1, vec x2, vec x3, real *out) {
#if ADV_DTYPE == ADV_FLOAT64
    vec32 f0 = folded(x0), f1 = folded(x1), f2 = folded(x2), f3 = folded(x3);
    vec32 a = __builtin_shufflevector(f0, f1, 0, 4, 2, 6) + __builtin_shufflevector(f0, f1, 1, 5, 3, 7);
    vec32 b = __builtin_shufflevector(f2, f3, 0, 4, 2, 6) + __builtin_shufflevector(f2, f3, 1, 5, 3, 7);
    *(four *)out = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
#else
    vec a = MIXED(x0, x1, BLEND) + MIXED(x0, x1, CROSS);
    vec b = MIXED(x2, x3, BLEND) + MIXED(x2, x3, CROSS);
    vec32 c = folded(MIXED(a, b, EVEN) + MIXED(a, b, ODD));
    *(four *)out = __builtin_shufflevector(c, c, 0, 1, 2, 3) + __builtin_shufflevector(c, c, 4, 5, 6, 7);
#endif
}

#endif
