/* Numbers of the layers on a device: how they are stored and computed with, 16 bytes of them at a time, sums of a team.

   No header of CUDA's is included, so that NVRTC needs no include path. Macro of the frame: ADV_DTYPE. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 2
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

#define FULL 0xffffffffu
#define INLINE __device__ __forceinline__

/* As in rms.py. */
constexpr real EPS = real(1e-5);

struct __align__(16) Vec { unsigned x, y, z, w; };

/* elements of 16 bytes of storage */
constexpr int PACK = 16 / int(sizeof(store));

INLINE float half_bits(unsigned short bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}
INLINE unsigned short half_of(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
INLINE unsigned short bfloat_of(float x) {
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

/* One number out of its storage, and into it. */
INLINE real get(store x) {
#if ADV_DTYPE <= 2
  return x;
#elif ADV_DTYPE == 3
  return __uint_as_float(unsigned(x) << 16);
#else
  return half_bits(x);
#endif
}
#if ADV_DTYPE > 2
INLINE real get(real x) { return x; }
#endif
INLINE store put(real x) {
#if ADV_DTYPE <= 2
  return x;
#elif ADV_DTYPE == 3
  return bfloat_of(x);
#else
  return half_of(x);
#endif
}

INLINE void keep_as(real x, store &found) { found = put(x); }
#if ADV_DTYPE > 2
INLINE void keep_as(real x, real &found) { found = x; }
#endif

/* The COUNT numbers at p, which is aligned to as many; COUNT is PACK or 1. */
template <int COUNT> INLINE void take(const store *p, store *found) {
  if constexpr (COUNT == 1) {
    found[0] = *p;
  } else {
    *(Vec *)found = *(const Vec *)p;
  }
}
/* The same in the type that is computed in; p may be of that type itself. */
template <int COUNT, typename A> INLINE void take_real(const A *p, real *found) {
  constexpr int LOADS = COUNT == 1 ? 1 : COUNT * int(sizeof(A)) / 16, EACH = COUNT / LOADS;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    __align__(16) A piece[EACH];
    if constexpr (COUNT == 1) {
      piece[0] = *p;
    } else {
      *(Vec *)piece = *(const Vec *)(p + i * EACH);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) found[i * EACH + e] = get(piece[e]);
  }
}
/* COUNT numbers to p, in the type that p has. */
template <int COUNT, typename Out> INLINE void give_real(const real *from, Out *p) {
  constexpr int STORES = COUNT == 1 ? 1 : COUNT * int(sizeof(Out)) / 16, EACH = COUNT / STORES;
#pragma unroll
  for (int i = 0; i < STORES; i++) {
    __align__(16) Out piece[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) keep_as(from[i * EACH + e], piece[e]);
    if constexpr (COUNT == 1) {
      *p = piece[0];
    } else {
      *(Vec *)(p + i * EACH) = *(const Vec *)piece;
    }
  }
}

/* The sum of x over LANES lanes that lie side by side in a warp: the same in all of them. */
template <int LANES> INLINE real lanes_sum(real x) {
#pragma unroll
  for (int o = LANES / 2; o; o >>= 1) x += __shfl_xor_sync(FULL, x, o);
  return x;
}

/* The same over a block of THREADS threads, all of which come here; once a launch. */
template <int THREADS> INLINE real block_sum(real x) {
  __shared__ real parts[32];
  x = lanes_sum<32>(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++) x += parts[w];
  return x;
}

INLINE real silu(real a) { return a / (real(1) + exp(-a)); }
