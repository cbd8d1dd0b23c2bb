/* Forward and backward by tiles: of a row only lse (base 2) and delta are kept. */
#include "forward_tiles.cuh"
#include "gradient_tiles.cuh"
#include "task.cuh"

/* Forward's own shape, of eight warps a block, which take longer steps where its rows are many. */
template <int COUNT> using EightWarps = Front<COUNT, 8 / COUNT, 8 * (COUNT > 2 ? COUNT : 2)>;

/* lse of all query rows, then delta. */
__device__ __forceinline__ real *lse_of(const Chain &c) { return c.space; }
__device__ __forceinline__ real *delta_of(const Chain &c) { return c.space + c.rows(); }

__device__ __forceinline__ Gradients gradients_of(const Chain &c) {
  return {c.q, c.k, c.v, c.gout, c.gq, c.gk, c.gv, lse_of(c), delta_of(c), c.heads / c.kv_heads, c.causal, c.n};
}

/* Writes rows of out, and keeps their lse and delta. */
template <typename F> __device__ __forceinline__ void finish(const Chain &c, Running &my, const Place &place) {
  if (own_split<F::SHARING>()) return;
  const real *gout = c.gout + (place.head * c.n + place.mine) * HD;
  for (int r = 0; r < 2; r++) shrink(my, r, 1 / my.total[r]);
  real delta[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < HD / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (place.mine + row_in_tile(e) < c.n)
        delta[e / 2] += my.out.c[j][e] * gout[row_in_tile(e) * HD + column_in_tile(j, e)];
  put<F::SHARING>(my.out, c.out + place.head * c.n * HD, place.mine, c.n);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    delta[r] = row_sum(delta[r]);
    const int row = place.mine + lane_row() + 8 * r;
    if (lane_pair() || row >= c.n) continue;
    lse_of(c)[place.head * c.n + row] = my.most[r] + log2(my.total[r]);
    delta_of(c)[place.head * c.n + row] = delta[r];
  }
}

/* One block's query rows: out, lse, delta. keep(s, row, column): is handed each scaled score, LOWEST where unseen. */
template <typename F, typename Keep> __device__ __forceinline__ void forward_tile(const Chain &c, const Place &place, Keep keep) {
  const int n = c.n, causal = c.causal;
  const wide cache = place.head / (c.heads / c.kv_heads) * n * HD;
  const real scale = score_scale() * LOG2E;
  Running my;
  attend<F>(my, c.q + place.head * n * HD, c.k + cache, c.v + cache, place, 0, causal ? min(n, place.first + F::OWN) : n, n,
            [=](real x, int row, int key) {
              x = key < (causal ? min(n, row + 1) : n) ? x * scale : LOWEST;
              keep(x, row, key);
              return x;
            });
  finish<F>(c, my, place);
}
