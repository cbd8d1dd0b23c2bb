/* What CUDA has without any header, for a CPU: vectors, shuffles, atomics, functions of numbers. After threads.h. */
#include <math.h>

#include <type_traits>

#define VECTORS(T, name, bytes2, bytes4)                                                              \
  struct __align__(bytes2) name##2 { T x, y; };                                                       \
  struct name##3 { T x, y, z; };                                                                      \
  struct __align__(bytes4) name##4 { T x, y, z, w; };                                                 \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                   \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                           \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
VECTORS(int, int, 8, 16)
VECTORS(unsigned, uint, 8, 16)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)
typedef Triple dim3;

/* --- lanes --- */

static const unsigned ALL_LANES = ~0u;

template <typename T> static T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  const int lane = current % 32, other = lane ^ by;
  return from_lane(mask, value, other, other < (lane & -width) + width);
}
template <typename T> static T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = current % 32;
  return from_lane(mask, value, (lane & -width) + (from & (width - 1)), true);
}
template <typename T> static T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = current % 32;
  return from_lane(mask, value, lane + int(by), (lane & (width - 1)) + int(by) < width);
}
template <typename T> static T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = current % 32;
  return from_lane(mask, value, lane - int(by), (lane & (width - 1)) >= int(by));
}
static unsigned __ballot_sync(unsigned mask, int yes) {
  unsigned found = 0;
  const unsigned able = mask & warps[current / 32].live;
  meet(mask, {{unsigned(yes != 0)}}, [&](const Shown *all) {
    for (unsigned i = 0; i < 32; i++) found |= (able >> i & 1 & all[i].word[0]) << i;
  });
  return found;
}
static int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, !yes) == 0; }
static void __syncwarp(unsigned mask = ALL_LANES) { meet(mask, {}, [](const Shown *) {}); }

/* --- memory --- */

static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldca(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline T __ldlu(const T *p) { return *p; }
template <typename T> static inline void __stwb(T *p, T value) { *p = value; }
template <typename T> static inline void __stcg(T *p, T value) { *p = value; }
template <typename T> static inline void __stcs(T *p, T value) { *p = value; }

/* An address of shared memory has 32 bits: its distance from the dynamic one. Assembler that is given such an address is
   replaced by a function that turns it back. */
static inline size_t __cvta_generic_to_shared(const void *p) {
  return size_t(unsigned(int((const unsigned char *)p - dynamic_shared)));
}
static inline void *shared_at(unsigned address) { return dynamic_shared + int(address); }

template <typename T> static inline T change(T *p, T to) { const T old = *p; *p = to; return old; }
#define ATOMICS(T)                                                                                    \
  static inline T atomicAdd(T *p, T by) { return change<T>(p, *p + by); }                             \
  static inline T atomicExch(T *p, T to) { return change<T>(p, to); }
ATOMICS(int)
ATOMICS(unsigned)
ATOMICS(unsigned long long)
ATOMICS(float)
ATOMICS(double)
#define WHOLE_ATOMICS(T)                                                                              \
  static inline T atomicSub(T *p, T by) { return change<T>(p, *p - by); }                             \
  static inline T atomicMax(T *p, T by) { return change<T>(p, *p > by ? *p : by); }                   \
  static inline T atomicMin(T *p, T by) { return change<T>(p, *p < by ? *p : by); }                   \
  static inline T atomicOr(T *p, T by) { return change<T>(p, *p | by); }                              \
  static inline T atomicCAS(T *p, T was, T to) { return change<T>(p, *p == was ? to : *p); }
WHOLE_ATOMICS(int)
WHOLE_ATOMICS(unsigned)
WHOLE_ATOMICS(unsigned long long)
static inline unsigned atomicInc(unsigned *p, unsigned most) { return change<unsigned>(p, *p >= most ? 0 : *p + 1); }

/* --- numbers --- */

template <typename A, typename B> static inline std::common_type_t<A, B> max(A a, B b) {
  typedef std::common_type_t<A, B> T;
  return T(a) < T(b) ? T(b) : T(a);
}
template <typename A, typename B> static inline std::common_type_t<A, B> min(A a, B b) {
  typedef std::common_type_t<A, B> T;
  return T(b) < T(a) ? T(b) : T(a);
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
#define __expf expf
#define __exp2f exp2f
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __powf powf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static inline float __saturatef(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline float __int2float_rn(int x) { return float(x); }

template <typename To, typename From> static inline To as(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits of one size");
  To found;
  memcpy(&found, &value, sizeof found);
  return found;
}
static inline float __uint_as_float(unsigned bits) { return as<float>(bits); }
static inline float __int_as_float(int bits) { return as<float>(bits); }
static inline unsigned __float_as_uint(float x) { return as<unsigned>(x); }
static inline int __float_as_int(float x) { return as<int>(x); }
static inline long long __double_as_longlong(double x) { return as<long long>(x); }
static inline double __longlong_as_double(long long bits) { return as<double>(bits); }
static inline double __hiloint2double(int high, int low) {
  return as<double>(uint64_t(unsigned(high)) << 32 | unsigned(low));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned pick) {
  const uint64_t both = uint64_t(y) << 32 | x;
  unsigned found = 0;
  for (int i = 0; i < 4; i++) found |= unsigned(both >> (pick >> 4 * i & 7) * 8 & 255) << 8 * i;
  return found;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
