/* The passes of attention's backward in two simple mappings of threads, float64 or float32:

   PACKED    a thread has a row (or a column) of the scores, 128 of them a block
   ONE_LANE  the first lane of each warp has one, the other 31 idle

   P and GS lie in the workspace, made by the first pass (ADV_PERSIST 1), or each pass computes those it needs from the
   row statistics lse and delta (0). Sums that threads own are in registers; others are added to memory by atomics.

   No header of CUDA's is included, so that NVRTC needs no include path. Macros of the frame: ADV_DTYPE. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 2
#endif
#ifndef ADV_HD
#define ADV_HD 64
#endif
#ifndef ADV_PERSIST
#define ADV_PERSIST 1
#endif
#if ADV_DTYPE == 1
typedef double real;
__device__ __forceinline__ real power_of_e(real x) { return exp(x); }
#else
typedef float real;
__device__ __forceinline__ real power_of_e(real x) { return expf(x); }
#endif
typedef long long wide;

#define FULL 0xffffffffu

constexpr int THREADS = 128;
enum Mapping { PACKED, ONE_LANE };

/* Pointers of the whole problem. p, gs: [b*h][n][n], or delta: [b*h][n]. */
struct Task {
  const real *q, *k, *v, *out, *lse, *gout;
  real *gq, *gk, *gv, *p, *gs, *delta;
  int sharing, causal, n;
};

/* What every entry takes, and the record of it. */
#define PARAMETERS                                                                                                      \
  const real *q, const real *k, const real *v, const real *out, const real *lse, const real *gout, real *gq, real *gk, \
      real *gv, unsigned char *workspace, int batch, int heads, int kv_heads, int head_dim, int causal, int n
#define THE_TASK task_of(q, k, v, out, lse, gout, gq, gk, gv, (real *)workspace, batch, heads, kv_heads, causal, n)

__device__ __forceinline__ Task task_of(const real *q, const real *k, const real *v, const real *out, const real *lse,
                                        const real *gout, real *gq, real *gk, real *gv, real *space, int batch,
                                        int heads, int kv_heads, int causal, int n) {
  real *gs = space + wide(batch) * heads * n * n;
  return {q, k, v, out, lse, gout, gq, gk, gv, space, gs, space, heads / kv_heads, causal, n};
}

__device__ __forceinline__ real score_scale() { return real(1) / real(sqrt(double(ADV_HD))); }

/* Unrolled in part, or the compiler would keep rows that stay the same in more registers than there are. */
__device__ __forceinline__ real dot(const real *a, const real *b) {
  real sum = 0;
#pragma unroll 8
  for (int d = 0; d < ADV_HD; d++) sum = fma(a[d], b[d], sum);
  return sum;
}

/* Row i of query head h (of all b*h), or of the head of k and v that serves it. */
__device__ __forceinline__ wide row_of(const Task &c, int h, int i) { return (wide(h) * c.n + i) * ADV_HD; }
__device__ __forceinline__ wide key_row(const Task &c, int h, int j) { return row_of(c, h / c.sharing, j); }

/* Rows of keys that query row i sees; the first query row that sees key row j. */
__device__ __forceinline__ int seen_by(const Task &c, int i) { return c.causal ? i + 1 : c.n; }
__device__ __forceinline__ int first_to_see(const Task &c, int j) { return c.causal ? j : 0; }

/* P[i,j] and GS[i,j] of rows that are given: q, gout of row i, k, v of row j. */
__device__ __forceinline__ real weight(const real *q, const real *k, real lse) {
  return power_of_e(fma(dot(q, k), score_scale(), -lse));
}
__device__ __forceinline__ real slope(real p, const real *gout, const real *v, real delta) {
  return p * (dot(gout, v) - delta);
}

/* The same of pair (i, j) of head h, looked up or computed. */
__device__ __forceinline__ real weight_of(const Task &c, int h, int i, int j) {
  const wide row = wide(h) * c.n + i;
#if ADV_PERSIST
  return c.p[row * c.n + j];
#else
  return weight(c.q + row * ADV_HD, c.k + key_row(c, h, j), c.lse[row]);
#endif
}
__device__ __forceinline__ real slope_of(const Task &c, int h, int i, int j) {
  const wide row = wide(h) * c.n + i;
#if ADV_PERSIST
  return c.gs[row * c.n + j];
#else
  return slope(weight_of(c, h, i, j), c.gout + row * ADV_HD, c.v + key_row(c, h, j), c.delta[row]);
#endif
}

/* The row (or column) of a thread; past all of them for a thread that has none. */
template <Mapping M> __device__ __forceinline__ int own_row() {
  if (M == PACKED) return blockIdx.x * THREADS + threadIdx.x;
  return threadIdx.x % 32 ? 0x7fffffff : int(blockIdx.x * (THREADS / 32) + threadIdx.x / 32);
}

__device__ __forceinline__ void zero_row(real *row) {
#pragma unroll
  for (int d = 0; d < ADV_HD; d++) row[d] = 0;
}

/* delta of each row, or its row of P and GS; the rows of gk become zero where they are added to (ATOMIC). */
template <Mapping M, bool ATOMIC> __device__ __forceinline__ void first_pass(const Task &c) {
  const int i = own_row<M>(), h = blockIdx.y;
  if (i >= c.n) return;
  const wide row = wide(h) * c.n + i;
  const real *gout = c.gout + row * ADV_HD;
  const real delta = dot(gout, c.out + row * ADV_HD);
  if (ATOMIC && h % c.sharing == 0) zero_row(c.gk + key_row(c, h, i));
#if ADV_PERSIST
  const real *q = c.q + row * ADV_HD;
  const real lse = c.lse[row];
  for (int j = 0; j < seen_by(c, i); j++) {
    const real p = weight(q, c.k + key_row(c, h, j), lse);
    c.p[row * c.n + j] = p;
    c.gs[row * c.n + j] = slope(p, gout, c.v + key_row(c, h, j), delta);
  }
#else
  c.delta[row] = delta;
#endif
}

/* Rows of gv, or of gk, each summed by the thread that has it. blockIdx.y: head of k and v. */
template <Mapping M, bool OF_KEYS> __device__ __forceinline__ void column_pass(const Task &c) {
  const int j = own_row<M>(), g = blockIdx.y;
  if (j >= c.n) return;
  const real *from = OF_KEYS ? c.q : c.gout;
  real sum[ADV_HD];
  zero_row(sum);
  for (int h = g * c.sharing; h < (g + 1) * c.sharing; h++)
    for (int i = first_to_see(c, j); i < c.n; i++) {
      const real w = OF_KEYS ? slope_of(c, h, i, j) : weight_of(c, h, i, j);
#pragma unroll
      for (int d = 0; d < ADV_HD; d++) sum[d] = fma(w, from[row_of(c, h, i) + d], sum[d]);
    }
  real *to = (OF_KEYS ? c.gk : c.gv) + row_of(c, g, j);
  const real scale = OF_KEYS ? score_scale() : real(1);
#pragma unroll
  for (int d = 0; d < ADV_HD; d++) to[d] = sum[d] * scale;
}

/* A row that a thread keeps, in registers or what it spills them to: read from memory anew for each pair, the rows of 32
   lanes would take more time than all that is measured here. */
__device__ __forceinline__ void keep_row(real (&own)[ADV_HD], const real *row) {
#pragma unroll
  for (int d = 0; d < ADV_HD; d++) own[d] = row[d];
}

/* Rows of gq, each summed by the thread that has it; rows of gk by atomics (ATOMIC). ROTATED: each row begins at a key
   row of its own, so that the lanes of a warp add to different addresses. */
template <Mapping M, bool ATOMIC, bool ROTATED> __device__ __forceinline__ void row_pass(const Task &c) {
  const int i = own_row<M>(), h = blockIdx.y;
  if (i >= c.n) return;
  const int seen = seen_by(c, i), start = ROTATED ? (c.causal ? i / 2 : i) : 0;
  const real scale = score_scale();
  real sum[ADV_HD], q[ADV_HD];
  zero_row(sum);
  if (ATOMIC) keep_row(q, c.q + row_of(c, h, i));
  for (int step = 0; step < seen; step++) {
    const int j = start + step < seen ? start + step : start + step - seen;
    const real w = slope_of(c, h, i, j) * scale;
    const wide at = key_row(c, h, j);
#pragma unroll
    for (int d = 0; d < ADV_HD; d++) {
      sum[d] = fma(w, c.k[at + d], sum[d]);
      if (ATOMIC) atomicAdd(c.gk + at + d, w * q[d]);
    }
  }
#pragma unroll
  for (int d = 0; d < ADV_HD; d++) c.gq[row_of(c, h, i) + d] = sum[d];
}

/* row_pass<PACKED, true>, but a warp adds up its 32 rows in shuffles before one lane adds the sum to memory. All lanes take
   part to the end; those without a row, or with one that does not see the key row, add zero. */
__device__ __forceinline__ void reduced_row_pass(const Task &c) {
  const int own = own_row<PACKED>(), h = blockIdx.y, i = min(own, c.n - 1), lane = threadIdx.x % 32;
  const int last = min(own - lane + 31, c.n - 1), seen = own < c.n ? seen_by(c, i) : 0;
  const real scale = score_scale();
  real sum[ADV_HD], q[ADV_HD];
  zero_row(sum);
  keep_row(q, c.q + row_of(c, h, i));
  for (int j = 0; j < seen_by(c, last); j++) {
    const real w = j < seen ? slope_of(c, h, i, j) * scale : real(0);
    const wide at = key_row(c, h, j);
#pragma unroll
    for (int d = 0; d < ADV_HD; d++) {
      sum[d] = fma(w, c.k[at + d], sum[d]);
      real x = w * q[d];
#pragma unroll
      for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(FULL, x, o);
      if (lane == d % 32) atomicAdd(c.gk + at + d, x);
    }
  }
  if (own < c.n)
#pragma unroll
    for (int d = 0; d < ADV_HD; d++) c.gq[row_of(c, h, i) + d] = sum[d];
}
