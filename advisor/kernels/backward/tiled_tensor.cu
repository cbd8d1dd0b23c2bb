/* variant {
  "idea": "tiles on the tensor cores, float32 cut into parts, scores computed twice: blocks of gk and gv by columns and of gq by rows side by side",
  "language": "cuda", "symbol": "backward_first", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_TILES": [1, 2, 4], "ADV_SPLITS": [1, 2, 4, 8], "ADV_STEP": [16, 32], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 4, "ADV_STEP": 16, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8",
            "(32 * ADV_TILES + 2 * ADV_SPLITS * ADV_STEP * ADV_STAGES) * (head_dim * item_bytes + 16) <= 232448"],
  "reads": "batch * n * (head_dim * (6 * heads + 4 * kv_heads) + 5 * heads)",
  "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + 2 * heads)",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "tile_bytes": "(32 * ADV_TILES + 2 * ADV_STAGES * ADV_SPLITS * ADV_STEP) * row_bytes"
  },
  "grid": ["(n + 3) // 4", "batch * heads"], "block": "128",
  "then": [{"symbol": "backward_tiles", "grid": ["tiles", "batch * heads", "2"], "block": "32 * ADV_TILES * ADV_SPLITS",
            "shared": "tile_bytes"}],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory", "rank": 18
} */
#include "tensor.cuh"

extern "C" __global__ void __launch_bounds__(128) backward_first(PARAMETERS) {
  const Gradients c = GRADIENTS;
  first_rows<false>(c, out, lse);
}

/* gk and gv need nothing of gq: their blocks run side by side, those with more to do first. */
extern "C" __global__ void __launch_bounds__(TEAM) backward_tiles(PARAMETERS) {
  const Gradients c = GRADIENTS;
  if (blockIdx.z == 0) {
    if (blockIdx.y < batch * kv_heads) column_tile<false>(c, column_place(), [](real, wide, int) {});
    return;
  }
  const Place place = query_place(causal);
  const real *low = c.lse + place.head * n, *of_rows = c.delta + place.head * n;
  row_tile(c, place, [=](int row, real &base, real &delta) {
    base = row < n ? low[row] : NEVER;
    delta = row < n ? of_rows[row] : real(0);
  });
}
