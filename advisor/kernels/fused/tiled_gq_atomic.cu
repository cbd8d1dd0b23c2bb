/* variant {
  "idea": "tiles on the tensor cores: forward keeps lse and delta, gk and gv by columns, gq by atomic sums in the order in which blocks come",
  "language": "cuda", "symbol": "forward_tiles", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim", "ADV_STEP": "16", "ADV_TILES": "2"},
  "build_knobs": {"ADV_FRONT": [2, 4, 8], "ADV_SPLITS": [2, 4], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_FRONT": 4, "ADV_SPLITS": 4, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535", "ADV_SPLITS > 2 or ADV_STAGES == 2"],
  "reads": "batch * n * head_dim * (4 * heads + 4 * kv_heads) + 2 * batch * heads * n",
  "writes": "batch * n * head_dim * (3 * heads + 2 * kv_heads) + 2 * batch * heads * n",
  "atomics": "batch * heads * head_dim * (tiles * n - causal * (16 * tiles * (tiles - 1)))",
  "derived": {
    "tiles": "(n + 31) // 32",
    "row_bytes": "head_dim * real_bytes + 16",
    "stream_bytes": "32 * ADV_STAGES * ADV_SPLITS * row_bytes"
  },
  "grid": ["(n + 16 * ADV_FRONT - 1) // (16 * ADV_FRONT)", "batch * heads"], "block": "256",
  "shared": "(16 * ADV_FRONT + 128 // ADV_FRONT * max(2, ADV_FRONT)) * row_bytes",
  "then": [
    {"symbol": "gradient_columns", "grid": ["tiles", "batch * kv_heads"], "block": "64 * ADV_SPLITS",
     "shared": "64 * row_bytes + stream_bytes + ADV_SPLITS * 32 * (16 * real_bytes + 16)"}
  ],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory",
  "rank": 15
} */
#include "tiled.cuh"
#ifndef ADV_FRONT
#define ADV_FRONT 4
#endif

typedef EightWarps<ADV_FRONT> Rows;

#define TILED_ARGUMENTS CHAIN_ARGUMENTS, int tiles, int row_bytes, int stream_bytes

extern "C" __global__ void __launch_bounds__(Rows::TEAM) forward_tiles(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  const Place place = query_place<Rows::TILES, Rows::SHARING>(causal);
  forward_tile<Rows>(c, place, [](real, int, int) {});
  Sum<HD> none;
  zero(none);
  put<Rows::SHARING>(none, c.gq + place.head * n * HD, place.mine, n);
}

extern "C" __global__ void __launch_bounds__(TEAM) gradient_columns(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  column_tile<true>(gradients_of(c), column_place(), [](real, wide, int) {});
}
