/* Products of tiles of float32 or float64 on tensor cores, 16 by 8 and 8 deep. Lane 4 g + t of a warp brings of the left
   operand rows g and g + 8, places t and t + 4 of the 8; of the right column g, the same places; see PTX ISA, m16n8k8.

   Which of the 8 is at which place does not matter if both operands agree: place t has the number 2 t, place t + 4 the
   number 2 t + 1. So a lane loads neighbours, and the weights of a product are an operand of the next as they lie.

   float32: every number is cut into a high part of 11 bits and a low part of as many; three products of parts (low times
   low is below float32's own rounding) keep float32's accuracy. */
#include "tiles.cuh"
#ifndef ADV_BM
#define ADV_BM 64
#endif
#ifndef ADV_BN
#define ADV_BN 32
#endif

/* Rows of shared memory: lanes that load at once meet 32 banks. */
constexpr int BM = ADV_BM, BN = ADV_BN, KEYED = ADV_HD + 8, VALUED = ADV_HD + VEC;

#if ADV_DTYPE == 1
struct Left {
  double a[4];
};
__device__ __forceinline__ Left left(double a0, double a1, double a2, double a3) { return {{a0, a1, a2, a3}}; }
__device__ __forceinline__ void product(double (&c)[4], const double (&a)[4], double b0, double b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b0), "d"(b1));
}
__device__ __forceinline__ void multiply(double (&c)[4], const Left &x, double b0, double b1) { product(c, x.a, b0, b1); }
#else
struct Left {
  unsigned high[4], low[4];
};
__device__ __forceinline__ void cut(float x, unsigned &high, unsigned &low) {
  high = __float_as_uint(x) & 0xffffe000u;
  low = __float_as_uint(x - __uint_as_float(high)); /* the tensor cores do not look at its last 13 bits */
}
__device__ __forceinline__ Left left(float a0, float a1, float a2, float a3) {
  Left x;
  cut(a0, x.high[0], x.low[0]);
  cut(a1, x.high[1], x.low[1]);
  cut(a2, x.high[2], x.low[2]);
  cut(a3, x.high[3], x.low[3]);
  return x;
}
__device__ __forceinline__ void product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(float (&c)[4], const Left &x, float b0, float b1) {
  unsigned high0, low0, high1, low1;
  cut(b0, high0, low0);
  cut(b1, high1, low1);
  product(c, x.low, high0, high1);
  product(c, x.high, low0, low1);
  product(c, x.high, high0, high1);
}
#endif

struct Query {}; /* read anew for each tile of keys: it would take half of the registers */
__device__ __forceinline__ Query query(const real *) { return {}; }

__device__ __forceinline__ void score(real (&s)[BN / 8][4], const Query &, const real *q, const real *k) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < BN / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] = 0;
#pragma unroll 4
  for (int c = 0; c < ADV_HD / 8; c++) {
    const int d = 8 * c + 2 * t;
    const Pair upper = *(const Pair *)(q + g * KEYED + d), lower = *(const Pair *)(q + (g + 8) * KEYED + d);
    const Left rows = left(upper.x, lower.x, upper.y, lower.y);
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
      const Pair key = *(const Pair *)(k + (8 * j + g) * KEYED + d);
      multiply(s[j], rows, key.x, key.y);
    }
  }
}

__device__ __forceinline__ void add(real (&sum)[ADV_HD / 8][4], const real (&s)[BN / 8][4], const real *v) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < BN / 8; j++) {
    const Left rows = left(s[j][0], s[j][2], s[j][1], s[j][3]);
    const real *at = v + (8 * j + 2 * t) * VALUED + g;
#pragma unroll
    for (int c = 0; c < ADV_HD / 8; c++) multiply(sum[c], rows, at[8 * c], at[VALUED + 8 * c]);
  }
}
#include "warps.cuh"
