/* Forward and backward by tiles: of a row only lse (base 2) and delta are kept. */
#include "gradient_tiles.cuh"
#include "task.cuh"

constexpr real LOWEST = real(-1e30);

/* lse of all query rows, then delta. */
__device__ __forceinline__ real *lse_of(const Chain &c) { return c.space; }
__device__ __forceinline__ real *delta_of(const Chain &c) { return c.space + c.rows(); }

__device__ __forceinline__ Gradients gradients_of(const Chain &c) {
  return {c.q, c.k, c.v, c.gout, c.gq, c.gk, c.gv, lse_of(c), delta_of(c), c.heads / c.kv_heads, c.causal, c.n};
}

/* The largest over the four lanes of a row. */
__device__ __forceinline__ real row_most(real x) {
  x = max(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* What a warp knows of its sixteen query rows: of two of them a lane has the running maximum and its part of the total. */
struct Running {
  Sum<HD> out;
  real most[2], total[2];
};

/* STEP columns from `start` into the running sums: s holds products of q and k, and then the weights. */
__device__ __forceinline__ void weigh(Running &my, Sum<STEP> &s, const real *values) {
  real most[2] = {my.most[0], my.most[1]}, base[2];
#pragma unroll
  for (int j = 0; j < STEP / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) most[e / 2] = max(most[e / 2], s.c[j][e]);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    most[r] = row_most(most[r]);
    const real shrink = ex2(my.most[r] - most[r]);
    my.most[r] = most[r];
    base[r] = most[r] == LOWEST ? real(0) : most[r]; /* of a row that saw nothing so far no weight is 1 */
    my.total[r] *= shrink;
#pragma unroll
    for (int j = 0; j < HD / 8; j++) {
      my.out.c[j][2 * r] *= shrink;
      my.out.c[j][2 * r + 1] *= shrink;
    }
  }
#pragma unroll
  for (int j = 0; j < STEP / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      s.c[j][e] = ex2(s.c[j][e] - base[e / 2]);
      my.total[e / 2] += s.c[j][e];
    }
  accumulate<STEP>(my.out, s, values);
}

/* The warps of a tile agree on the maximum and the total of each row; the first one's `out` is whole then. */
__device__ __forceinline__ void agree(Running &my, real *space) {
  __shared__ real most[TILES][SPLITS][16], total[TILES][SPLITS][16];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    my.total[r] = row_sum(my.total[r]);
    most[own_tile()][own_split()][lane_row() + 8 * r] = my.most[r];
    total[own_tile()][own_split()][lane_row() + 8 * r] = my.total[r];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = lane_row() + 8 * r;
    real largest = LOWEST, whole = 0;
    for (int s = 0; s < SPLITS; s++) largest = max(largest, most[own_tile()][s][row]);
    for (int s = 0; s < SPLITS; s++) whole += total[own_tile()][s][row] * ex2(most[own_tile()][s][row] - largest);
    const real shrink = ex2(my.most[r] - largest);
    my.most[r] = largest;
    my.total[r] = whole;
#pragma unroll
    for (int j = 0; j < HD / 8; j++) {
      my.out.c[j][2 * r] *= shrink;
      my.out.c[j][2 * r + 1] *= shrink;
    }
  }
  join(my.out, space);
}

/* Writes rows of out, and keeps their lse and delta. */
__device__ __forceinline__ void finish(const Chain &c, Running &my, const Place &place) {
  if (own_split()) return;
  const real *gout = c.gout + (place.head * c.n + place.mine) * HD;
  const real inverse[2] = {1 / my.total[0], 1 / my.total[1]};
  real delta[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < HD / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const real x = my.out.c[j][e] * inverse[e / 2];
      my.out.c[j][e] = x;
      if (place.mine + row_in_tile(e) < c.n) delta[e / 2] += x * gout[row_in_tile(e) * HD + column_in_tile(j, e)];
    }
  put(my.out, c.out + place.head * c.n * HD, place.mine, c.n);
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
template <typename Keep> __device__ __forceinline__ void forward_tile(const Chain &c, const Place &place, Keep keep) {
  const int n = c.n;
  const wide head = place.head / (c.heads / c.kv_heads) * n * HD;
  const real scale = score_scale() * LOG2E;
  real *own = lines, *stream = lines + OWN * LD;
  bring<OWN>(own, c.q + place.head * n * HD, place.first, n);
  Running my;
  zero(my.out);
  for (int r = 0; r < 2; r++) {
    my.most[r] = LOWEST;
    my.total[r] = 0;
  }
  const int end = c.causal ? min(n, place.first + OWN) : n;
  walk<false>(c.k + head, c.v + head, stream, 0, end, n, [&](const real *keys, const real *values, int start) {
    Sum<STEP> s;
    products<STEP>(s, own + own_tile() * 16 * LD, keys);
    each(s, [&](real &x, int r, int j) {
      x = start + j < (c.causal ? min(n, place.mine + r + 1) : n) ? x * scale : LOWEST;
      keep(x, place.mine + r, start + j);
    });
    weigh(my, s, values);
  });
  agree(my, stream);
  finish(c, my, place);
}
