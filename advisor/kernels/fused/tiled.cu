/* variant {
  "idea": "tiles on the tensor cores, nothing of order n^2 in memory: forward keeps lse and delta, gk and gv by columns, gq by rows beside them",
  "language": "cuda", "symbol": "forward_tiles", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim", "ADV_STEP": "16"},
  "build_knobs": {"ADV_FRONT": [1, 2, 4], "ADV_TILES": [1, 2], "ADV_SPLITS": [2, 4, 8], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_FRONT": 1, "ADV_TILES": 1, "ADV_SPLITS": 4, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535",
            "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8", "ADV_SPLITS > 2 or ADV_STAGES == 2",
            "ADV_FRONT == ADV_TILES or ADV_FRONT == 2 * ADV_TILES"],
  "reads": "batch * n * head_dim * (4 * heads + 6 * kv_heads) + 4 * batch * heads * n",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 2 * batch * heads * n",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "stream_bytes": "32 * ADV_STAGES * ADV_SPLITS * row_bytes"
  },
  "grid": ["(n + 16 * ADV_FRONT - 1) // (16 * ADV_FRONT)", "batch * heads"], "block": "256",
  "shared": "(16 * ADV_FRONT + 128 // ADV_FRONT * max(2, ADV_FRONT)) * row_bytes",
  "then": [
    {"symbol": "gradient_tiles", "grid": ["tiles", "batch * heads", "2"], "block": "32 * ADV_TILES * ADV_SPLITS",
     "shared": "32 * ADV_TILES * row_bytes + stream_bytes"}
  ],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory",
  "rank": 10
} */
#include "tiled.cuh"
#ifndef ADV_FRONT
#define ADV_FRONT 1
#endif

typedef EightWarps<ADV_FRONT> Rows;

#define TILED_ARGUMENTS CHAIN_ARGUMENTS, int tiles, int row_bytes, int stream_bytes

extern "C" __global__ void __launch_bounds__(Rows::TEAM) forward_tiles(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  forward_tile<Rows>(c, query_place<Rows::TILES, Rows::SHARING>(causal), [](real, int, int) {});
}

/* gk and gv need nothing of gq: their blocks run side by side, those with more to do first. */
extern "C" __global__ void __launch_bounds__(TEAM) gradient_tiles(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  if (blockIdx.z == 0) {
    if (blockIdx.y < batch * kv_heads) column_tile<false>(gradients_of(c), column_place(), [](real, wide, int) {});
    return;
  }
  const Place place = query_place(causal);
  const real *lse = lse_of(c) + place.head * n, *delta = delta_of(c) + place.head * n;
  row_tile(gradients_of(c), place, [=](int row, real &of_row, real &delta_of_row) {
    of_row = row < n ? lse[row] : NEVER;
    delta_of_row = row < n ? delta[row] : real(0);
  });
}
