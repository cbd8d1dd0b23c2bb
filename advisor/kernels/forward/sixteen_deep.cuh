/* Products of tiles of 16-bit numbers on tensor cores, 16 by 8 and 16 deep, sums in float32. Fragments as PTX ISA has them
   for m16n8k16; weights of a product, rounded, are an operand of the next as they lie. */
#include "tiles.cuh"
#ifndef ADV_BM
#define ADV_BM 64
#endif
#ifndef ADV_BN
#define ADV_BN 64
#endif

/* Rows of shared memory: the eight rows of 16 bytes that are loaded at once meet 32 banks. */
constexpr int BM = ADV_BM, BN = ADV_BN, KEYED = ADV_HD + 8, VALUED = ADV_HD + 8;

__device__ __forceinline__ void product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if ADV_DTYPE == 3
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices of 8 by 8; lane 8 m + r brings the address of row r of matrix m. */
__device__ __forceinline__ void load_four(unsigned (&x)[4], const store *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ __forceinline__ void load_four_turned(unsigned (&x)[4], const store *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}

struct Query {
  unsigned part[ADV_HD / 16][4];
};

__device__ __forceinline__ Query query(const store *q) {
  const int lane = threadIdx.x % 32;
  Query found;
#pragma unroll
  for (int c = 0; c < ADV_HD / 16; c++) load_four(found.part[c], q + lane % 16 * KEYED + 16 * c + lane / 16 * 8);
  return found;
}

__device__ __forceinline__ void score(float (&s)[BN / 8][4], const Query &mine, const store *, const store *k) {
  const int lane = threadIdx.x % 32;
  const store *at = k + lane % 8 * KEYED + lane / 8 * 8;
#pragma unroll
  for (int j = 0; j < BN / 8; j++) {
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] = 0;
#pragma unroll
    for (int c = 0; c < ADV_HD / 32; c++) {
      unsigned key[4];
      load_four(key, at + 8 * j * KEYED + 32 * c);
      product(s[j], mine.part[2 * c], key[0], key[1]);
      product(s[j], mine.part[2 * c + 1], key[2], key[3]);
    }
  }
}

__device__ __forceinline__ void add(float (&sum)[ADV_HD / 8][4], const float (&s)[BN / 8][4], const store *v) {
  const int lane = threadIdx.x % 32;
  const store *at = v + lane % 16 * VALUED + lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < BN / 16; j++) {
    const unsigned rows[4] = {narrow(s[2 * j][0], s[2 * j][1]), narrow(s[2 * j][2], s[2 * j][3]),
                              narrow(s[2 * j + 1][0], s[2 * j + 1][1]), narrow(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
    for (int c = 0; c < ADV_HD / 16; c++) {
      unsigned value[4];
      load_four_turned(value, at + 16 * j * VALUED + 16 * c);
      product(sum[2 * c], rows, value[0], value[1]);
      product(sum[2 * c + 1], rows, value[2], value[3]);
    }
  }
}
#include "warps.cuh"
