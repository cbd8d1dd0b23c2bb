/* A block a query row: lanes on the elements of a key, then on the elements of the result, so that neighbours read
   neighbours. The row of scores lies where the variant says. */
#include "plain.cuh"
#ifndef ADV_THREADS
#define ADV_THREADS 128
#endif

/* lanes that share a key; elements of it that a lane has; keys that a block reads at once; parts of the weighted sum */
constexpr int LANES = 8, OWN = (ADV_HD + LANES - 1) / LANES, KEYS = ADV_THREADS / LANES;
constexpr int PARTS = ADV_THREADS / ADV_HD < 1 ? 1 : ADV_THREADS / ADV_HD;

__device__ __forceinline__ real joined(real a, real b, bool largest) { return largest ? max(a, b) : a + b; }

/* The sum, or the largest, of what all threads of a block have. */
__device__ __forceinline__ real over_block(real mine, bool largest) {
  __shared__ real parts[ADV_THREADS / 32];
#pragma unroll
  for (int o = 16; o; o >>= 1) mine = joined(mine, __shfl_xor_sync(FULL, mine, o), largest);
  __syncthreads(); /* nobody reads what was there before */
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  real all = parts[0];
#pragma unroll
  for (int w = 1; w < ADV_THREADS / 32; w++) all = joined(all, parts[w], largest);
  return all;
}

/* Scores of one query row into p [end]; the largest that this thread saw. */
__device__ __forceinline__ real score_row(const real *mine, const real *keys, real *p, int end) {
  const int lane = threadIdx.x % LANES;
  const real scale = score_scale();
  real own[OWN], most = LOWEST;
#pragma unroll
  for (int e = 0; e < OWN; e++) own[e] = e * LANES + lane < ADV_HD ? mine[e * LANES + lane] : real(0);
  for (int base = 0; base < end; base += KEYS) {
    const int j = base + threadIdx.x / LANES;
    const real *key = keys + wide(min(j, end - 1)) * ADV_HD;
    real s = 0;
#pragma unroll
    for (int e = 0; e < OWN; e++)
      if (e * LANES + lane < ADV_HD) s += own[e] * key[e * LANES + lane];
#pragma unroll
    for (int o = LANES / 2; o; o >>= 1) s += __shfl_xor_sync(FULL, s, o);
    s *= scale;
    if (j < end) {
      if (lane == 0) p[j] = s;
      most = max(most, s);
    }
  }
  return most;
}

/* The result row: threads that share an element of it take every PARTS-th row of v. */
__device__ __forceinline__ void weigh_row(const real *p, const real *values, real *out, int end, real total) {
  __shared__ real sums[PARTS * ADV_HD];
  for (int x = threadIdx.x; x < PARTS * ADV_HD; x += ADV_THREADS) {
    const int part = x / ADV_HD, d = x % ADV_HD;
    real sum = 0;
    for (int j = part; j < end; j += PARTS) sum += p[j] * values[wide(j) * ADV_HD + d];
    sums[x] = sum;
  }
  __syncthreads();
  for (int d = threadIdx.x; d < ADV_HD; d += ADV_THREADS) {
    real sum = 0;
#pragma unroll
    for (int part = 0; part < PARTS; part++) sum += sums[part * ADV_HD + d];
    out[d] = sum / total;
  }
}

/* Query row blockIdx.x of head blockIdx.y. p: room for n scores that only this block touches. */
__device__ __forceinline__ void attend_row(const real *q, const real *k, const real *v, real *out, real *p, int heads,
                                           int kv_heads, int causal, int n) {
  const int i = blockIdx.x, head = blockIdx.y, end = causal ? i + 1 : n;
  const wide row = (wide(head) * n + i) * ADV_HD, first = keys_of(head, heads, kv_heads, n) * ADV_HD;
  const real most = over_block(score_row(q + row, k + first, p, end), true); /* and all scores are there */
  real total = 0;
  for (int j = threadIdx.x; j < end; j += ADV_THREADS) {
    const real e = power(p[j] - most);
    p[j] = e;
    total += e;
  }
  total = over_block(total, false);
  weigh_row(p, v + first, out + row, end, total);
}
