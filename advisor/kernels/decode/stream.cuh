/* What the CUDA variants of decode share: storage, 16-byte loads, base-2 exponentials, and the merge across splits.

   No header of CUDA's is included, so that NVRTC needs no include path. Macros of the frame: ADV_DTYPE. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 2
#endif
#ifndef ADV_HD
#define ADV_HD 64
#endif
#if ADV_DTYPE == 1
typedef double real;
typedef double store;
#elif ADV_DTYPE == 2
typedef float real;
typedef float store;
#else
typedef float real;
typedef unsigned short store;
#endif
typedef long long wide;

#define LOWEST real(-1e30)
#define FULL 0xffffffffu

struct __align__(16) Vec { unsigned x, y, z, w; };

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ double ex2(double x) { return exp2(x); }

/* Read once and not again by this SM: past L1. */
__device__ __forceinline__ Vec load(const store *p) {
  Vec r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}

__device__ __forceinline__ float half_bits(unsigned short bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}

/* The VEC elements of a load. */
__device__ __forceinline__ void widen(const Vec &a, real *f) {
#if ADV_DTYPE == 1
  f[0] = __hiloint2double(int(a.y), int(a.x));
  f[1] = __hiloint2double(int(a.w), int(a.z));
#elif ADV_DTYPE == 2
  f[0] = __uint_as_float(a.x);
  f[1] = __uint_as_float(a.y);
  f[2] = __uint_as_float(a.z);
  f[3] = __uint_as_float(a.w);
#else
  const unsigned w[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if ADV_DTYPE == 3
    f[2 * i] = __uint_as_float(w[i] << 16);
    f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
#else
    f[2 * i] = half_bits((unsigned short)w[i]);
    f[2 * i + 1] = half_bits((unsigned short)(w[i] >> 16));
#endif
  }
#endif
}

/* log2(e) / sqrt(d): scores are kept in base 2. */
__device__ __forceinline__ real score_scale() {
  return real(1.4426950408889634) / real(sqrt(double(ADV_HD)));
}

/* Partial results of one head group: sums [split][HEADS][HD], of all groups first, so that their rows are aligned to 16
   bytes; then stats [split][HEADS][2], maximum and total. */
template <int HEADS> struct Partial {
  real *sums, *stats;
  __device__ Partial(unsigned char *workspace, wide first, int group, int splits) {
    real *all = (real *)(workspace + first);
    sums = all + wide(group) * splits * HEADS * ADV_HD;
    stats = all + (wide(gridDim.y) * ADV_HD + wide(group) * 2) * splits * HEADS;
  }
};

/* 16 bytes of a partial result; lanes that share a row of one; such loads a lane and row; rows a warp reads at once */
#if ADV_DTYPE == 1
typedef double2 Pack;
__device__ __forceinline__ real piece(const Pack &a, int i) { return i ? a.y : a.x; }
#else
typedef float4 Pack;
__device__ __forceinline__ real piece(const Pack &a, int i) { return i == 0 ? a.x : i == 1 ? a.y : i == 2 ? a.z : a.w; }
#endif
constexpr int PACK = 16 / int(sizeof(real)), ACROSS = ADV_HD / PACK < 32 ? ADV_HD / PACK : 32;
constexpr int DEEP = ADV_HD / PACK / ACROSS, SIDE = 32 / ACROSS;

/* The last block of a head group to come here merges its splits, in their order whichever block that is, so that the
   result does not depend on timing. It leaves the counter at zero, as it found it. All threads of the block come. */
template <int HEADS, int WARPS>
__device__ void finish(Partial<HEADS> part, unsigned *counter, int splits, real *out) {
  __shared__ real sums[WARPS][HEADS][ADV_HD];
  __shared__ real stats[WARPS][HEADS][2];
  __shared__ bool last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  real most[HEADS], total[HEADS], a[HEADS][DEEP * PACK];
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    most[h] = LOWEST;
    total[h] = 0;
#pragma unroll
    for (int i = 0; i < DEEP * PACK; i++) a[h][i] = 0;
  }
  /* the loads of MANY splits and all heads at once, and the maximum kept as they come: what takes the time here is
     waiting for the L2 */
  constexpr int MANY = 20 / HEADS < 8 ? 20 / HEADS : 8, STEP = WARPS * SIDE;
  const int col = lane % ACROSS;
  for (int first = warp * SIDE + lane / ACROSS; first < splits; first += MANY * STEP) {
    Pack x[MANY][HEADS][DEEP];
    real f[MANY][HEADS], t[MANY][HEADS];
#pragma unroll
    for (int u = 0; u < MANY; u++)
#pragma unroll
      for (int h = 0; h < HEADS; h++) {
        const wide row = wide(min(first + u * STEP, splits - 1)) * HEADS + h;
        f[u][h] = __ldcg(&part.stats[row * 2]);
        t[u][h] = __ldcg(&part.stats[row * 2 + 1]);
#pragma unroll
        for (int p = 0; p < DEEP; p++)
          x[u][h][p] = __ldcg((const Pack *)(part.sums + row * ADV_HD) + p * ACROSS + col);
      }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      real now = most[h];
#pragma unroll
      for (int u = 0; u < MANY; u++) now = max(now, f[u][h]); /* past the end the last split comes again */
      const real shrink = ex2(most[h] - now);
      most[h] = now;
      total[h] *= shrink;
#pragma unroll
      for (int i = 0; i < DEEP * PACK; i++) a[h][i] *= shrink;
#pragma unroll
      for (int u = 0; u < MANY; u++) {
        const real own = first + u * STEP < splits ? ex2(f[u][h] - now) : real(0);
        total[h] += own * t[u][h];
#pragma unroll
        for (int i = 0; i < DEEP * PACK; i++) a[h][i] += own * piece(x[u][h][i / PACK], i % PACK);
      }
    }
  }
#pragma unroll
  for (int o = 16; o >= ACROSS; o >>= 1)
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const real other = __shfl_xor_sync(FULL, most[h], o), their = __shfl_xor_sync(FULL, total[h], o);
      const real now = max(most[h], other), mine = ex2(most[h] - now), theirs = ex2(other - now);
      most[h] = now;
      total[h] = total[h] * mine + their * theirs;
#pragma unroll
      for (int i = 0; i < DEEP * PACK; i++) a[h][i] = a[h][i] * mine + __shfl_xor_sync(FULL, a[h][i], o) * theirs;
    }
  if (lane < ACROSS)
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
      for (int i = 0; i < DEEP * PACK; i++) sums[warp][h][(i / PACK * ACROSS + col) * PACK + i % PACK] = a[h][i];
      if (lane == 0) {
        stats[warp][h][0] = most[h];
        stats[warp][h][1] = total[h];
      }
    }
  __syncthreads();
  for (int e = threadIdx.x; e < HEADS * ADV_HD; e += WARPS * 32) {
    const int h = e / ADV_HD;
    real most = LOWEST, a = 0, total = 0;
    for (int w = 0; w < WARPS; w++) most = max(most, stats[w][h][0]);
    for (int w = 0; w < WARPS; w++) {
      const real f = ex2(stats[w][h][0] - most);
      a += f * sums[w][h][e % ADV_HD];
      total += f * stats[w][h][1];
    }
    out[e] = a / total;
  }
  if (threadIdx.x == 0) *counter = 0;
}
