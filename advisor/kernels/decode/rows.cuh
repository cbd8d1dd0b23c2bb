/* The walk over cache rows on the CUDA cores: lanes of a warp share a row, 16 bytes a lane. */
#include "stream.cuh"
#ifndef ADV_UNROLL
#define ADV_UNROLL 4
#endif

/* elements of one 16-byte load; lanes that share a row; such loads a lane and row; rows that a warp reads at once */
constexpr int VEC = 16 / int(sizeof(store));
constexpr int LANES = ADV_HD / VEC < 32 ? ADV_HD / VEC : 32;
constexpr int PIECES = ADV_HD / VEC / LANES;
constexpr int AT_ONCE = 32 / LANES;
constexpr int OWN = PIECES * VEC;

/* What one lane knows of HEADS query heads: its own elements of the queries and of the weighted sums. */
template <int HEADS> struct Walk {
  real q[HEADS][OWN], sum[HEADS][OWN], most[HEADS], total[HEADS];
};

/* q: [HEADS][HD] of these heads. Only read here: whatever used them would wait for them before the first cache row is
   asked for, so it is scores that are scaled. */
template <int HEADS> __device__ __forceinline__ void begin(Walk<HEADS> &my, const real *q) {
  const int col = threadIdx.x % 32 % LANES;
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    my.most[h] = LOWEST;
    my.total[h] = 0;
#pragma unroll
    for (int e = 0; e < OWN; e++) {
      my.q[h][e] = q[h * ADV_HD + e / VEC * LANES * VEC + col * VEC + e % VEC];
      my.sum[h][e] = 0;
    }
  }
}

/* Rows first, first + step, ... in groups of UNROLL x AT_ONCE, those before `end`. k, v: [n][HD] of this head. */
template <int HEADS>
__device__ __forceinline__ void walk(Walk<HEADS> &my, const store *k, const store *v, int first, int end, int step) {
  const int sub = threadIdx.x % 32 / LANES, col = threadIdx.x % 32 % LANES;
  const real scale = score_scale();
  for (int base = first; base < end; base += step) {
    Vec kk[ADV_UNROLL][PIECES], vv[ADV_UNROLL][PIECES];
    real s[ADV_UNROLL][HEADS];
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++)
#pragma unroll
      for (int p = 0; p < PIECES; p++)
        kk[u][p] = load(k + wide(min(base + u * AT_ONCE + sub, end - 1)) * ADV_HD + (p * LANES + col) * VEC);
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++)
#pragma unroll
      for (int p = 0; p < PIECES; p++)
        vv[u][p] = load(v + wide(min(base + u * AT_ONCE + sub, end - 1)) * ADV_HD + (p * LANES + col) * VEC);
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) {
      real f[OWN];
#pragma unroll
      for (int p = 0; p < PIECES; p++) widen(kk[u][p], f + p * VEC);
#pragma unroll
      for (int h = 0; h < HEADS; h++) {
        real x = 0;
#pragma unroll
        for (int e = 0; e < OWN; e++) x = fma(my.q[h][e], f[e], x);
        s[u][h] = x;
      }
    }
#pragma unroll
    for (int o = LANES / 2; o; o >>= 1)
#pragma unroll
      for (int u = 0; u < ADV_UNROLL; u++)
#pragma unroll
        for (int h = 0; h < HEADS; h++) s[u][h] += __shfl_xor_sync(FULL, s[u][h], o);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      real most = my.most[h];
#pragma unroll
      for (int u = 0; u < ADV_UNROLL; u++) {
        s[u][h] = base + u * AT_ONCE + sub < end ? s[u][h] * scale : LOWEST;
        most = max(most, s[u][h]);
      }
      const real shrink = ex2(my.most[h] - most);
      my.most[h] = most;
      my.total[h] *= shrink;
#pragma unroll
      for (int e = 0; e < OWN; e++) my.sum[h][e] *= shrink;
#pragma unroll
      for (int u = 0; u < ADV_UNROLL; u++) {
        s[u][h] = base + u * AT_ONCE + sub < end ? ex2(s[u][h] - most) : real(0);
        my.total[h] += s[u][h];
      }
    }
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) {
      real f[OWN];
#pragma unroll
      for (int p = 0; p < PIECES; p++) widen(vv[u][p], f + p * VEC);
#pragma unroll
      for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int e = 0; e < OWN; e++) my.sum[h][e] = fma(s[u][h], f[e], my.sum[h][e]);
    }
  }
}

/* The rows that a warp read at once become one: afterwards all its lanes of one column agree. */
template <int HEADS> __device__ __forceinline__ void join_rows(Walk<HEADS> &my) {
#pragma unroll
  for (int o = 16; o >= LANES && o > 0; o >>= 1)
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const real other = __shfl_xor_sync(FULL, my.most[h], o), their = __shfl_xor_sync(FULL, my.total[h], o);
      const real most = max(my.most[h], other), a = ex2(my.most[h] - most), b = ex2(other - most);
      my.total[h] = my.total[h] * a + their * b;
      my.most[h] = most;
#pragma unroll
      for (int e = 0; e < OWN; e++) my.sum[h][e] = my.sum[h][e] * a + __shfl_xor_sync(FULL, my.sum[h][e], o) * b;
    }
}

/* One warp's result as the partial result of a split. */
template <int HEADS> __device__ __forceinline__ void emit(const Walk<HEADS> &my, Partial<HEADS> part, int split) {
  const int lane = threadIdx.x % 32, col = lane % LANES;
  if (lane >= LANES) return;
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
#pragma unroll
    for (int e = 0; e < OWN; e++)
      part.sums[(wide(split) * HEADS + h) * ADV_HD + e / VEC * LANES * VEC + col * VEC + e % VEC] = my.sum[h][e];
    if (lane == 0) {
      part.stats[(split * HEADS + h) * 2] = my.most[h];
      part.stats[(split * HEADS + h) * 2 + 1] = my.total[h];
    }
  }
}

/* All warps' results of a block become the partial result of a split; of the only split, the output. */
template <int HEADS, int WARPS>
__device__ __forceinline__ void join_warps(const Walk<HEADS> &my, Partial<HEADS> part, int split, int splits, real *out) {
  __shared__ real sums[WARPS][HEADS][ADV_HD];
  __shared__ real stats[WARPS][HEADS][2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col = lane % LANES;
  if (lane < LANES) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
      for (int e = 0; e < OWN; e++)
        sums[warp][h][e / VEC * LANES * VEC + col * VEC + e % VEC] = my.sum[h][e];
      if (lane == 0) {
        stats[warp][h][0] = my.most[h];
        stats[warp][h][1] = my.total[h];
      }
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
    if (splits == 1) {
      out[e] = a / total;
      continue;
    }
    part.sums[wide(split) * HEADS * ADV_HD + e] = a;
    if (e % ADV_HD == 0) {
      part.stats[(split * HEADS + h) * 2] = most;
      part.stats[(split * HEADS + h) * 2 + 1] = total;
    }
  }
}

/* One block: rows split * chunk .. of HEADS query heads that share a head of the cache, WARPS warps side by side. */
template <int HEADS, int WARPS>
__device__ void split_rows(const real *q, const store *k, const store *v, real *out, unsigned char *workspace,
                           wide first, int sharing, int n, int chunk) {
  const int group = blockIdx.y, splits = gridDim.x, warp = threadIdx.x / 32;
  const wide cache = wide(group) * HEADS / sharing * n * ADV_HD;
  const Partial<HEADS> part(workspace, first, group, splits);
  const int start = blockIdx.x * chunk, end = min(n, start + chunk);
  Walk<HEADS> my;
  begin<HEADS>(my, q + wide(group) * HEADS * ADV_HD);
  constexpr int SPAN = ADV_UNROLL * AT_ONCE;
  walk<HEADS>(my, k + cache, v + cache, start + warp * SPAN, end, WARPS * SPAN);
  join_rows<HEADS>(my);
  real *mine = out + wide(group) * HEADS * ADV_HD;
  join_warps<HEADS, WARPS>(my, part, blockIdx.x, splits, mine);
  if (splits > 1) finish<HEADS, WARPS>(part, (unsigned *)workspace + group, splits, mine);
}
