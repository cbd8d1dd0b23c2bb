/* What the tiled variants of forward share beside plain.cuh: copies into shared memory, base-2 exponentials, splits. */
#include "plain.cuh"

#if ADV_DTYPE > 2
/* Two numbers rounded to nearest into 16 bits each, `x` in the lower half. */
__device__ __forceinline__ unsigned narrow(float x, float y) {
  unsigned both;
#if ADV_DTYPE == 3
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
#endif
  return both;
}
__device__ __forceinline__ void put(store *to, real x, real y) { *(unsigned *)to = narrow(x, y); }
#endif

/* elements of a pack; stored elements of 16 bytes, and such pieces of a row */
constexpr int VEC = 16 / int(sizeof(real));
constexpr int STORED = 16 / int(sizeof(store)), PIECES = ADV_HD / STORED;

/* log2(e) / sqrt(d): scores are kept in base 2. */
__device__ __forceinline__ real base_two_scale() { return real(1.4426950408889634) * score_scale(); }

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* 2 to the x without a branch, so that a thread's many run side by side; 2 to the -1020 for less. It is 2 to a whole number
   times 1 + f p(f) with |f| <= 1/2: p takes the values of (2^f - 1) / f at the Chebyshev nodes of that interval, where
   it is off by 2e-17, and all of it by 1.1 units of roundoff. */
__device__ __forceinline__ double ex2(double x) {
  const double rounder = 6755399441055744.0; /* 1.5 * 2^52: a sum with it is rounded, and its low bits are that number */
  x = max(x, -1020.0);
  const double whole = x + rounder, f = x - (whole - rounder);
  double p = 4.4549605981865186e-10;
  p = fma(p, f, 7.072585949269223e-09);
  p = fma(p, f, 1.0178062445845774e-07);
  p = fma(p, f, 1.321544258792169e-06);
  p = fma(p, f, 1.525273382983612e-05);
  p = fma(p, f, 0.0001540353044173605);
  p = fma(p, f, 0.0013333558146416936);
  p = fma(p, f, 0.009618129107606888);
  p = fma(p, f, 0.0555041086648216);
  p = fma(p, f, 0.24022650695910097);
  p = fma(p, f, 0.6931471805599453);
  p = fma(p, f, 1.0);
  return __longlong_as_double(__double_as_longlong(p) + (__double_as_longlong(whole) << 52));
}

#include "splits.cuh"

__device__ __forceinline__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_all_but_one() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

/* Rows first .. first + ROWS - 1 of [n][HD] into [ROWS][STRIDE]; past n the last row again, so that all is finite. */
template <int ROWS, int STRIDE, int THREADS>
__device__ __forceinline__ void copy_rows(store *to, const store *from, int first, int n) {
#pragma unroll 4
  for (int x = threadIdx.x; x < ROWS * PIECES; x += THREADS) {
    const int r = x / PIECES, c = x % PIECES * STORED;
    copy16(to + r * STRIDE + c, from + wide(min(first + r, n - 1)) * ADV_HD + c);
  }
}
