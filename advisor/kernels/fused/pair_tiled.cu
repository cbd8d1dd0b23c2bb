/* variant {
  "idea": "the naive pair by tiles on the tensor cores: forward keeps A, backward reads it twice and keeps S",
  "language": "cuda", "symbol": "forward_tiles", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_TILES": [1, 2, 4, 8], "ADV_SPLITS": [1, 2, 4, 8], "ADV_STEP": [16, 32], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 4, "ADV_STEP": 16, "ADV_STAGES": 2},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535", "ADV_TILES < 4 or ADV_STEP == 32",
            "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8",
            "32 * ADV_TILES + 2 * ADV_SPLITS * ADV_STEP * ADV_STAGES <= 416"],
  "reads": "batch * n * head_dim * (4 * heads + 4 * kv_heads) + 4 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 3 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "stream_bytes": "2 * ADV_STAGES * ADV_SPLITS * ADV_STEP * row_bytes"
  },
  "grid": ["tiles", "batch * heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
  "shared": "16 * ADV_TILES * row_bytes + stream_bytes",
  "then": [
    {"symbol": "gradient_rows", "grid": ["tiles", "batch * heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
     "shared": "16 * ADV_TILES * row_bytes + stream_bytes"},
    {"symbol": "gradient_columns", "grid": ["tiles", "batch * kv_heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
     "shared": "stream_bytes"}
  ],
  "workspace": "batch * heads * n * (2 + 2 * n) * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory",
  "rank": 20
} */
#include "tiled.cuh"

#define TILED_ARGUMENTS CHAIN_ARGUMENTS, int tiles, int row_bytes, int stream_bytes

/* Row `row` (of all) of A and of S. */
__device__ __forceinline__ real *weights_of(const Chain &c, wide row) { return c.space + 2 * c.rows() + row * c.n; }
__device__ __forceinline__ real *scores_of(const Chain &c, wide row) { return weights_of(c, c.rows() + row); }

/* Scores of the block's rows become weights: `end` of them a row. */
__device__ __forceinline__ void normalise(const Chain &c, const Place &place, int end) {
  const int rows = min(OWN, c.n - place.first), warp = threadIdx.x / 32;
  for (int r = warp; r < rows; r += TEAM / 32) {
    const wide row = place.head * c.n + place.first + r;
    const real lse = lse_of(c)[row];
    real *a = weights_of(c, row);
    for (int j = threadIdx.x % 32; j < end; j += 32) a[j] = ex2(a[j] - lse);
  }
}

/* Columns that a block's rows have weights of, whole steps: zeros where none are seen. */
__device__ __forceinline__ int seen_by(const Chain &c, const Place &place) {
  return c.causal ? min(c.n, (place.first + OWN + STEP - 1) / STEP * STEP) : c.n;
}

extern "C" __global__ void __launch_bounds__(TEAM) forward_tiles(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  const Place place = query_place(causal);
  real *rows = weights_of(c, place.head * n);
  forward_tile<Front<TILES, SPLITS, STEP>>(c, place, [=](real x, int row, int column) {
    if (row < n && column < n) rows[wide(row) * n + column] = x;
  });
  __syncthreads();
  normalise(c, place, seen_by(c, place));
}

extern "C" __global__ void __launch_bounds__(TEAM) gradient_rows(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  const Place place = query_place(causal);
  const wide rows = place.head * n, cache = place.head / (heads / kv_heads) * n * HD;
  real *cotangents = lines, *stream = lines + OWN * LD;
  bring<OWN>(cotangents, gout + rows * HD, place.first, n);
  const real *weights = weights_of(c, rows), *delta = delta_of(c) + rows;
  real *kept = scores_of(c, rows);
  Sum<HD> sum;
  zero(sum);
  walk<false>(k + cache, v + cache, stream, 0, causal ? min(n, place.first + OWN) : n, n,
       [&](const real *keys, const real *values, int start) {
         Sum<STEP> s;
         products<STEP>(s, cotangents + own_tile() * 16 * LD, values);
         each(s, [&](real &x, int r, int j) {
           const int row = place.mine + r, column = start + j;
           const bool there = row < n && column < n;
           const wide at = wide(row) * n + column;
           x = there ? weights[at] * (x - delta[row]) : real(0);
           if (there) kept[at] = x;
         });
         accumulate<STEP>(sum, s, keys);
       });
  join(sum, stream);
  each(sum, [](real &x, int, int) { x *= score_scale(); });
  put(sum, gq + rows * HD, place.mine, n);
}

/* STEP query rows of a matrix [n][n] from `start` on, as weights of the sixteen columns from `mine` on. */
__device__ __forceinline__ void take(Sum<STEP> &w, const real *matrix, int start, int mine, int n) {
  each(w, [=](real &x, int j, int i) {
    x = start + i < n && mine + j < n ? matrix[wide(start + i) * n + mine + j] : real(0);
  });
}

extern "C" __global__ void __launch_bounds__(TEAM) gradient_columns(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  const Place place = column_place();
  const int sharing = heads / kv_heads;
  Sum<HD> of_keys, of_values;
  zero(of_keys);
  zero(of_values);
  for (int h = 0; h < sharing; h++) {
    const wide rows = (place.head * sharing + h) * n;
    walk<false>(q + rows * HD, gout + rows * HD, lines, causal ? place.first : 0, n, n,
         [&](const real *queries, const real *cotangents, int start) {
           Sum<STEP> w;
           take(w, weights_of(c, rows), start, place.mine, n);
           accumulate<STEP>(of_values, w, cotangents);
           take(w, scores_of(c, rows), start, place.mine, n);
           accumulate<STEP>(of_keys, w, queries);
         });
  }
  join(of_keys, lines);
  join(of_values, lines);
  each(of_keys, [](real &x, int, int) { x *= score_scale(); });
  put(of_keys, gk + place.head * n * HD, place.mine, n);
  put(of_values, gv + place.head * n * HD, place.mine, n);
}
