/* variant {
  "idea": "tiles on the tensor cores, float32 cut into parts, each score computed once: gk and gv by columns, gq by atomics of the same tiles; sums of gq in the order in which blocks come",
  "language": "cuda", "symbol": "backward_first", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_TILES": [2, 4], "ADV_SPLITS": [1, 2, 4], "ADV_STEP": [16, 32], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 4, "ADV_STEP": 16, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8",
            "(32 * ADV_TILES + 2 * ADV_SPLITS * ADV_STEP * ADV_STAGES) * (head_dim * item_bytes + 16) + 16 * ADV_SPLITS * ADV_TILES * (ADV_STEP * item_bytes + 16) <= 232448", "ADV_STAGES == 1 or ADV_TILES * ADV_SPLITS == 4"],
  "reads": "batch * n * (head_dim * (4 * heads + 2 * kv_heads) + 3 * heads)",
  "writes": "batch * n * (head_dim * (2 * heads + 2 * kv_heads) + 2 * heads)",
  "atomics": "batch * heads * head_dim * (tiles * n - causal * (16 * ADV_TILES * tiles * (tiles - 1) // 2))",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "tile_bytes": "(32 * ADV_TILES + 2 * ADV_STAGES * ADV_SPLITS * ADV_STEP) * row_bytes"
  },
  "grid": ["(n + 3) // 4", "batch * heads"], "block": "128",
  "then": [{"symbol": "backward_gradients", "grid": ["tiles", "batch * kv_heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
            "shared": "tile_bytes + ADV_SPLITS * 16 * ADV_TILES * (ADV_STEP * real_bytes + 16)"}],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "tiled: a warp takes sixteen key rows, warps of one tile share what streams by through shared memory; the lanes of an atomic lie on 8 rows, 4 neighbours of each",
  "rank": 21
} */
#include "tensor.cuh"

extern "C" __global__ void __launch_bounds__(128) backward_first(PARAMETERS) {
  const Gradients c = GRADIENTS;
  first_rows<true>(c, out, lse);
}

extern "C" __global__ void __launch_bounds__(TEAM) backward_gradients(PARAMETERS) {
  const Gradients c = GRADIENTS;
  column_tile<true>(c, column_place(), [](real, wide, int) {});
}
