/* The passes of attention's backward in the mapping LANE: a block has one row (or column) of the scores; its lanes lie on the
   contiguous index, keys (or queries) while scores are made, elements of a head while they are used. */
#include "passes.cuh"

/* Rows that a block walks side by side while its lanes lie on the elements of a head. */
constexpr int PARTS = THREADS / ADV_HD;

/* The sum of a number over all threads of the block. */
__device__ __forceinline__ real block_sum(real x) {
  __shared__ real parts[THREADS];
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int half = THREADS / 2; half; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  x = parts[0];
  __syncthreads();
  return x;
}

/* Two rows [HD] into shared memory. */
__device__ __forceinline__ void share_rows(real *to, const real *one, const real *other) {
  if (threadIdx.x < ADV_HD) {
    to[threadIdx.x] = one[threadIdx.x];
    to[ADV_HD + threadIdx.x] = other[threadIdx.x];
  }
  __syncthreads();
}

/* As first_pass; a block has row blockIdx.x of head blockIdx.y. */
template <bool ATOMIC> __device__ __forceinline__ void first_lane_pass(const Task &c) {
  const int i = blockIdx.x, h = blockIdx.y, d = threadIdx.x;
  const wide row = wide(h) * c.n + i;
  const real *gout = c.gout + row * ADV_HD, *out = c.out + row * ADV_HD;
  const real delta = block_sum(d < ADV_HD ? gout[d] * out[d] : real(0));
  if (ATOMIC && h % c.sharing == 0 && d < ADV_HD) c.gk[key_row(c, h, i) + d] = 0;
#if ADV_PERSIST
  __shared__ real rows[2 * ADV_HD];
  share_rows(rows, c.q + row * ADV_HD, gout);
  const real lse = c.lse[row];
  for (int j = threadIdx.x; j < seen_by(c, i); j += THREADS) {
    const real p = weight(rows, c.k + key_row(c, h, j), lse);
    c.p[row * c.n + j] = p;
    c.gs[row * c.n + j] = slope(p, rows + ADV_HD, c.v + key_row(c, h, j), delta);
  }
#else
  if (d == 0) c.delta[row] = delta;
#endif
}

/* Sums of the parts that walked side by side, as one row times `scale`. All threads come. */
__device__ __forceinline__ void put_row(real *to, real sum, real scale) {
  __shared__ real sums[THREADS];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < ADV_HD) {
    for (int part = 1; part < PARTS; part++) sum += sums[part * ADV_HD + threadIdx.x];
    to[threadIdx.x] = sum * scale;
  }
}

/* As column_pass; a block has column blockIdx.x of the head blockIdx.y of k and v. */
template <bool OF_KEYS> __device__ __forceinline__ void column_lane_pass(const Task &c) {
  __shared__ real w[THREADS], rows[2 * ADV_HD];
  const int j = blockIdx.x, g = blockIdx.y, part = threadIdx.x / ADV_HD, d = threadIdx.x % ADV_HD;
  const real *from = OF_KEYS ? c.q : c.gout;
  share_rows(rows, c.k + row_of(c, g, j), c.v + row_of(c, g, j));
  real sum = 0;
  for (int h = g * c.sharing; h < (g + 1) * c.sharing; h++)
    for (int first = first_to_see(c, j); first < c.n; first += THREADS) {
      const int i = first + threadIdx.x, count = min(THREADS, c.n - first);
      const wide row = wide(h) * c.n + i;
      if (i < c.n) {
#if ADV_PERSIST
        w[threadIdx.x] = OF_KEYS ? c.gs[row * c.n + j] : c.p[row * c.n + j];
#else
        const real p = weight(c.q + row * ADV_HD, rows, c.lse[row]);
        w[threadIdx.x] = OF_KEYS ? slope(p, c.gout + row * ADV_HD, rows + ADV_HD, c.delta[row]) : p;
#endif
      }
      __syncthreads();
      if (part < PARTS)
#pragma unroll 8
        for (int one = part; one < count; one += PARTS) sum = fma(w[one], from[row_of(c, h, first + one) + d], sum);
      __syncthreads();
    }
  put_row((OF_KEYS ? c.gk : c.gv) + row_of(c, g, j), sum, OF_KEYS ? score_scale() : real(1));
}

/* As row_pass; a block has row blockIdx.x of head blockIdx.y, and the lanes of an atomic lie on contiguous addresses. */
template <bool ATOMIC> __device__ __forceinline__ void row_lane_pass(const Task &c) {
  __shared__ real w[THREADS], rows[2 * ADV_HD];
  const int i = blockIdx.x, h = blockIdx.y, part = threadIdx.x / ADV_HD, d = threadIdx.x % ADV_HD, seen = seen_by(c, i);
  const wide row = wide(h) * c.n + i;
  const real scale = score_scale();
  share_rows(rows, c.q + row * ADV_HD, c.gout + row * ADV_HD);
  real sum = 0;
  for (int first = 0; first < seen; first += THREADS) {
    const int j = first + threadIdx.x, count = min(THREADS, seen - first);
    if (j < seen) {
#if ADV_PERSIST
      w[threadIdx.x] = scale * c.gs[row * c.n + j];
#else
      const real p = weight(rows, c.k + key_row(c, h, j), c.lse[row]);
      w[threadIdx.x] = scale * slope(p, rows + ADV_HD, c.v + key_row(c, h, j), c.delta[row]);
#endif
    }
    __syncthreads();
    if (part < PARTS)
#pragma unroll 8
      for (int one = part; one < count; one += PARTS) {
        const wide at = key_row(c, h, first + one) + d;
        sum = fma(w[one], c.k[at], sum);
        if (ATOMIC) atomicAdd(c.gk + at, w[one] * rows[d]);
      }
    __syncthreads();
  }
  put_row(c.gq + row * ADV_HD, sum, real(1));
}
