/* 2^x for x <= 0, in plain C that compilers vectorise inside a loop marked `omp simd`.

   Relative error under 3 unit roundoffs of float32 (1.8e-7; a test measures it) from -125 up to 0. Below, the value is
   2^-125, small enough to add nothing to a softmax whose largest weight is 1. The polynomial is the minimax one of
   degree 6 for 2^f on [-1/2, 1/2] (Remez exchange; its own relative error is 1.9e-9), the rest is rounding. It is
   summed in halves (Estrin), since a chain of six FMAs leaves the units idle. Adding MAGIC rounds x to the nearest
   integer and leaves that integer in the low bits, which then go into the exponent. No infinities, which
   -ffinite-math-only makes undefined, and no libm, whose calls stop vectorisation. */
#ifndef DECODE_EXP2_H
#define DECODE_EXP2_H

#include <stdint.h>
#include <string.h>

#define LOG2_E 1.4426950408889634f
#define LOWEST (-1e30f) /* stands for minus infinity */
#define MAGIC 12582912.0f /* 1.5 * 2^23 */

static inline float exp2_of(float x) {
    x = x < -125.0f ? -125.0f : x;
    float shifted = x + MAGIC;
    float f = x - (shifted - MAGIC);
    float f2 = f * f, f4 = f2 * f2;
    float low = 1.0f + 6.931471824645996e-1f * f;
    float middle = 2.4022646248340607e-1f + 5.550328642129898e-2f * f;
    float high = 9.618489071726799e-3f + 1.3399930903688073e-3f * f;
    float p = (low + middle * f2) + (high + 1.534581242594868e-4f * f2) * f4;
    uint32_t bits, exponent;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

#endif
