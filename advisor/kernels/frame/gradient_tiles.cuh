/* Gradients of attention by tiles on the tensor cores, from lse (base 2) and delta of each query row. */
#include "attention_tiles.cuh"

/* q, gout, gq [b,h,n,d]; k, v, gk, gv [b,g,n,d]; lse, delta [b,h,n]. `sharing`: query heads on one head of k and v. */
struct Gradients {
  const real *q, *k, *v, *gout;
  real *gq, *gk, *gv, *lse, *delta;
  int sharing, causal, n;
};

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
    if (row < n) atomicAdd(&gq[wide(row) * HD + first + d], value * score_scale());
  });
}

/* One block's rows of k and v: gk and gv, over all query rows that see them; ATOMIC: adds to gq of those on the way.
   keep(s, row, j) is handed each of GS; row: among those of all heads. */
template <bool ATOMIC, typename Keep>
__device__ __forceinline__ void column_tile(const Gradients &c, const Place &place, Keep keep) {
  const int n = c.n;
  const wide cache = place.head * n * HD;
  const real scale = score_scale() * LOG2E;
  real *keys = lines, *values = lines + OWN * LD, *stream = lines + 2 * OWN * LD;
  bring<OWN>(keys, c.k + cache, place.first, n);
  bring<OWN>(values, c.v + cache, place.first, n);
  keys += own_tile() * 16 * LD;
  values += own_tile() * 16 * LD;
  Sum<HD> gk, gv;
  zero(gk);
  zero(gv);
  for (int h = 0; h < c.sharing; h++) {
    const wide rows = (place.head * c.sharing + h) * n;
    const real *lse = c.lse + rows, *delta = c.delta + rows;
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
               const int i = start + column_in_tile(j, e);
               s.c[j][e] = a.c[j][e] * (s.c[j][e] - delta[min(i, n - 1)]);
               if (i < n) keep(s.c[j][e], rows + i, place.mine + row_in_tile(e));
             }
           accumulate<STEP>(gk, s, queries);
           if (ATOMIC) add_rows(s, lines, stream + STAGES * 2 * STREAM, c.gq + rows * HD, start, n);
         });
  }
  join(gk, stream);
  join(gv, stream);
  each(gk, [](real &x, int, int) { x *= score_scale(); });
  put(gk, c.gk + cache, place.mine, n);
  put(gv, c.gv + cache, place.mine, n);
}

/* One block's query rows: gq. known(row, lse, delta) tells those of a lane's row, of all its four lanes at once. */
template <typename Known> __device__ __forceinline__ void row_tile(const Gradients &c, const Place &place, Known known) {
  const int n = c.n;
  const wide rows = place.head * n, cache = place.head / c.sharing * n * HD;
  const real scale = score_scale() * LOG2E;
  real *queries = lines, *cotangents = lines + OWN * LD, *stream = lines + 2 * OWN * LD;
  bring<OWN>(queries, c.q + rows * HD, place.first, n);
  bring<OWN>(cotangents, c.gout + rows * HD, place.first, n);
  queries += own_tile() * 16 * LD;
  cotangents += own_tile() * 16 * LD;
  real lse[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; r++) known(place.mine + lane_row() + 8 * r, lse[r], delta[r]);
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
  each(gq, [](real &x, int, int) { x *= score_scale(); });
  put(gq, c.gq + rows * HD, place.mine, n);
}

/* One block's query rows: gq from GS that was kept, slope(row, j) of rows among those of all heads. */
template <typename Slope>
__device__ __forceinline__ void kept_row_tile(const Gradients &c, const Place &place, Slope slope) {
  const int n = c.n;
  const wide rows = place.head * n;
  const real *k = c.k + place.head / c.sharing * n * HD;
  Sum<HD> gq;
  zero(gq);
  const int end = c.causal ? min(n, place.first + OWN) : n;
  walk<false, false>(k, k, lines, 0, end, n, [&](const real *keys, const real *, int start) {
    Sum<STEP> s;
    each(s, [&](real &x, int r, int j) {
      const int row = place.mine + r, column = start + j;
      const bool seen = row < n && column < n && !(c.causal && column > row);
      x = seen ? slope(rows + row, column) : real(0);
    });
    accumulate<STEP>(gq, s, keys);
  });
  join(gq, lines);
  each(gq, [](real &x, int, int) { x *= score_scale(); });
  put(gq, c.gq + rows * HD, place.mine, n);
}
