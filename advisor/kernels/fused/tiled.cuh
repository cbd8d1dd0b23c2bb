/* Forward and backward by tiles: of a row only lse (base 2) and delta are kept. */
#include "tiles.cuh"

constexpr real LOG2E = real(1.4426950408889634), NEVER = real(1e30);

__device__ __forceinline__ real *lse_of(const Chain &c) { return c.space; }
__device__ __forceinline__ real *delta_of(const Chain &c) { return c.space + c.rows(); }

/* The sum or the largest over the four lanes of a row. */
__device__ __forceinline__ real row_sum(real x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ real row_most(real x) {
  x = max(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* The block's query rows or rows of k and v: those of `head`, the long ones first where causal. */
struct Place {
  wide head;
  int first, mine;
};
__device__ __forceinline__ Place query_place(const Chain &c) {
  const int tile = c.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  return {wide(blockIdx.y), tile * OWN, tile * OWN + own_tile() * 16};
}
__device__ __forceinline__ Place column_place() {
  const int tile = blockIdx.x;
  return {wide(blockIdx.y), tile * OWN, tile * OWN + own_tile() * 16};
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
  const real scale = scale_of() * LOG2E;
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

/* Adds S k / sqrt(d) of STEP query rows from `start` on, over the block's columns, to gq. s: of this warp's sixteen
   columns; keys: the block's; space: [SPLITS][OWN][STEP + VEC]. All warps of the block come here. */
__device__ __forceinline__ void add_rows(Sum<STEP> &s, const real *keys, real *space, real *gq, int start, int n) {
  constexpr int LS = STEP + VEC, BANDS = STEP / 16, SHARE = HD * BANDS / TILES;
  real *of_split = space + own_split() * OWN * LS, *own = of_split + own_tile() * 16 * LS;
  each(s, [=](real &x, int r, int i) { own[r * LS + i] = x; });
  __syncthreads();
  const int band = own_tile() % BANDS * 16, first = own_tile() / BANDS * SHARE;
  const real *x = of_split + 2 * lane_pair() * LS + band + lane_row();
  const real *y = keys + 2 * lane_pair() * LD + first + lane_row();
  Sum<SHARE> sum;
  zero(sum);
#pragma unroll 2
  for (int k = 0; k < OWN; k += 8, x += 8 * LS, y += 8 * LD) {
    const Left l = left(x[0], x[8], x[LS], x[LS + 8]);
#pragma unroll
    for (int j = 0; j < SHARE / 8; j++) multiply(sum.c[j], l, right(y[j * 8], y[LD + j * 8]));
  }
  each(sum, [=](real &value, int r, int d) {
    const int row = start + band + r;
    if (row < n) atomicAdd(&gq[wide(row) * HD + first + d], value * scale_of());
  });
}

/* One block's rows of k and v: gk and gv, over all query rows that see them; ATOMIC: adds to gq of those on the way. */
template <bool ATOMIC> __device__ __forceinline__ void column_tile(const Chain &c, const Place &place) {
  const int n = c.n, sharing = c.heads / c.kv_heads;
  const wide cache = place.head * n * HD;
  const real scale = scale_of() * LOG2E;
  real *keys = lines, *values = lines + OWN * LD, *stream = lines + 2 * OWN * LD;
  bring<OWN>(keys, c.k + cache, place.first, n);
  bring<OWN>(values, c.v + cache, place.first, n);
  keys += own_tile() * 16 * LD;
  values += own_tile() * 16 * LD;
  Sum<HD> gk, gv;
  zero(gk);
  zero(gv);
  for (int h = 0; h < sharing; h++) {
    const wide rows = (place.head * sharing + h) * n;
    const real *lse = lse_of(c) + rows, *delta = delta_of(c) + rows;
    walk<ATOMIC>(c.q + rows * HD, c.gout + rows * HD, stream, c.causal ? place.first : 0, n, n,
         [&](const real *queries, const real *cotangents, int start) {
           Sum<STEP> a, s;
           products<STEP>(a, keys, queries);
           each(a, [&](real &x, int r, int i) {
             /* a weight past the end of the columns may be infinite, and would spoil the rows that it is added to */
             const bool there = start + i < n && !(ATOMIC && place.mine + r >= n);
             const bool seen = there && !(c.causal && start + i < place.mine + r);
             x = ex2(seen ? x * scale - lse[min(start + i, n - 1)] : -NEVER);
           });
           accumulate<STEP>(gv, a, cotangents);
           products<STEP>(s, values, cotangents);
#pragma unroll
           for (int j = 0; j < STEP / 8; j++)
#pragma unroll
             for (int e = 0; e < 4; e++) {
               const int i = min(start + column_in_tile(j, e), n - 1);
               s.c[j][e] = a.c[j][e] * (s.c[j][e] - delta[i]);
             }
           accumulate<STEP>(gk, s, queries);
           if (ATOMIC) add_rows(s, lines, stream + STAGES * 2 * STREAM, c.gq + rows * HD, start, n);
         });
  }
  join(gk, stream);
  join(gv, stream);
  each(gk, [](real &x, int, int) { x *= scale_of(); });
  put(gk, c.gk + cache, place.mine, n);
  put(gv, c.gv + cache, place.mine, n);
}

/* One block's query rows: gq. */
__device__ __forceinline__ void row_tile(const Chain &c, const Place &place) {
  const int n = c.n;
  const wide rows = place.head * n, cache = place.head / (c.heads / c.kv_heads) * n * HD;
  const real scale = scale_of() * LOG2E;
  real *queries = lines, *cotangents = lines + OWN * LD, *stream = lines + 2 * OWN * LD;
  bring<OWN>(queries, c.q + rows * HD, place.first, n);
  bring<OWN>(cotangents, c.gout + rows * HD, place.first, n);
  queries += own_tile() * 16 * LD;
  cotangents += own_tile() * 16 * LD;
  real lse[2], delta[2];
  for (int r = 0; r < 2; r++) {
    const int row = place.mine + lane_row() + 8 * r;
    lse[r] = row < n ? lse_of(c)[rows + row] : NEVER;
    delta[r] = row < n ? delta_of(c)[rows + row] : real(0);
  }
  Sum<HD> gq;
  zero(gq);
  const int end = c.causal ? min(n, place.first + OWN) : n;
  walk<false>(c.k + cache, c.v + cache, stream, 0, end, n, [&](const real *keys, const real *values, int start) {
    Sum<STEP> a, s;
    products<STEP>(a, queries, keys);
    products<STEP>(s, cotangents, values);
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int column = start + column_in_tile(j, e);
        const bool seen = column < n && !(c.causal && column > place.mine + row_in_tile(e));
        const real weight = ex2(seen ? a.c[j][e] * scale - lse[e / 2] : -NEVER);
        s.c[j][e] = weight * (s.c[j][e] - delta[e / 2]);
      }
    accumulate<STEP>(gq, s, keys);
  });
  join(gq, stream);
  each(gq, [](real &x, int, int) { x *= scale_of(); });
  put(gq, c.gq + rows * HD, place.mine, n);
}
