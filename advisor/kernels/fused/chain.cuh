/* What the plain variants of attention forward and backward share: types, the problem, rows and columns of it.

   Query row t (of all sequences and heads) attends to the rows 0 .. end-1 of its head of k and v. A[t,j] is its weight of
   row j, S[t,j] = A[t,j] (gout[t] . v[j] - delta[t]) with delta[t] the sum over j of A[t,j] gout[t] . v[j].
   No header of CUDA's is included, so that NVRTC needs no include path. Macros of the frame: ADV_DTYPE. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 1
#endif
#ifndef ADV_HD
#define ADV_HD 64
#endif
#if ADV_DTYPE == 1
typedef double real;
#else
typedef float real;
#endif
typedef long long wide;

constexpr int HD = ADV_HD, THREADS = 128;

#include "task.cuh"

/* q, gout, ...: of this query row, [HD]; k, v, gk, gv: of its head, [n][HD]. */
struct Row {
  const real *q, *gout, *k, *v;
  real *out, *gq, *gk, *gv;
  int end;
};

__device__ __forceinline__ Row row_of(const Chain &c, wide t) {
  const wide cache = t / c.n / (c.heads / c.kv_heads) * c.n * HD;
  return {c.q + t * HD,  c.gout + t * HD, c.k + cache,  c.v + cache,
          c.out + t * HD, c.gq + t * HD,   c.gk + cache, c.gv + cache, c.causal ? int(t % c.n) + 1 : c.n};
}

/* Query rows that see row `j` of a head of k and v: `first` .. `end` - 1 of each of its query heads, which begin at
   `start`, `start` + n, ... */
struct Column {
  wide start;
  int j, first, sharing;
};

__device__ __forceinline__ Column column_of(const Chain &c, wide t) {
  const int sharing = c.heads / c.kv_heads, j = int(t % c.n);
  return {t / c.n * sharing * c.n, j, c.causal ? j : 0, sharing};
}

__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ double power(double x) { return exp(x); }

__device__ __forceinline__ real scale_of() { return real(1 / sqrt(double(HD))); }

constexpr real LOWEST = real(-1e30);

__device__ __forceinline__ real dot(const real *x, const real *y) {
  real s = 0;
  for (int d = 0; d < HD; d++) s += x[d] * y[d];
  return s;
}

/* Zeros for sums that others add to: `count` numbers, a thread each. */
__device__ __forceinline__ void clear(real *x, wide count) {
  const wide at = wide(blockIdx.x) * THREADS + threadIdx.x;
  if (at < count) x[at] = 0;
}
