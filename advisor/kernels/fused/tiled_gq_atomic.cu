/* variant {
  "idea": "tiles on the tensor cores: forward keeps lse and delta, gk and gv by columns, gq by atomic sums in the order in which blocks come",
  "language": "cuda", "symbol": "forward_tiles", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_TILES": [2, 4, 8], "ADV_SPLITS": [1, 2, 4], "ADV_STEP": [16, 32], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 4, "ADV_STEP": 32, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535", "ADV_TILES < 4 or ADV_STEP == 32",
            "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8",
            "32 * ADV_TILES + 2 * ADV_SPLITS * ADV_STEP * ADV_STAGES <= 320",
            "ADV_STAGES == 1 or ADV_TILES * ADV_SPLITS == 4"],
  "reads": "batch * n * head_dim * (4 * heads + 4 * kv_heads) + 2 * batch * heads * n",
  "writes": "batch * n * head_dim * (3 * heads + 2 * kv_heads) + 2 * batch * heads * n",
  "atomics": "batch * heads * head_dim * (tiles * n - causal * (16 * ADV_TILES * tiles * (tiles - 1) // 2))",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "stream_bytes": "2 * ADV_STAGES * ADV_SPLITS * ADV_STEP * row_bytes"
  },
  "grid": ["tiles", "batch * heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
  "shared": "16 * ADV_TILES * row_bytes + stream_bytes",
  "then": [
    {"symbol": "gradient_columns", "grid": ["tiles", "batch * kv_heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
     "shared": "32 * ADV_TILES * row_bytes + stream_bytes + ADV_SPLITS * 16 * ADV_TILES * (ADV_STEP * real_bytes + 16)"}
  ],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory",
  "rank": 15
} */
#include "tiled.cuh"

#define TILED_ARGUMENTS CHAIN_ARGUMENTS, int tiles, int row_bytes, int stream_bytes

extern "C" __global__ void __launch_bounds__(TEAM) forward_tiles(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  const Place place = query_place(causal);
  forward_tile(c, place, [](real, int, int) {});
  Sum<HD> none;
  zero(none);
  put(none, c.gq + place.head * n * HD, place.mine, n);
}

extern "C" __global__ void __launch_bounds__(TEAM) gradient_columns(TILED_ARGUMENTS) {
  const Chain c = CHAIN;
  column_tile<true>(gradients_of(c), column_place(), [](real, wide, int) {});
}
