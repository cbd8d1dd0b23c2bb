/* variant {
  "idea": "tiles on the tensor cores, float32 cut into parts, scores computed in both passes: gq and delta by rows, then gk and gv by columns",
  "language": "cuda", "symbol": "backward_gq", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_TILES": [1, 2, 4], "ADV_SPLITS": [1, 2, 4, 8], "ADV_STEP": [16, 32], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 2, "ADV_STEP": 32, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8",
            "(32 * ADV_TILES + 2 * ADV_SPLITS * ADV_STEP * ADV_STAGES) * (head_dim * item_bytes + 16) <= 232448"],
  "reads": "batch * n * (head_dim * (6 * heads + 4 * kv_heads) + 3 * heads)",
  "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + 2 * heads)",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "tile_bytes": "(32 * ADV_TILES + 2 * ADV_STAGES * ADV_SPLITS * ADV_STEP) * row_bytes"
  },
  "grid": ["tiles", "batch * heads"], "block": "32 * ADV_TILES * ADV_SPLITS", "shared": "tile_bytes",
  "then": [{"symbol": "backward_gk_gv", "grid": ["tiles", "batch * kv_heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
            "shared": "tile_bytes"}],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory", "rank": 20
} */
#include "tensor.cuh"

extern "C" __global__ void __launch_bounds__(TEAM) backward_gq(PARAMETERS) {
  const Gradients c = GRADIENTS;
  const Place place = query_place(causal);
  row_tile(c, place, [&](int row, real &low, real &delta) {
    const wide at = place.head * n + min(row, n - 1);
    low = row < n ? lse[at] * LOG2E : NEVER;
    delta = row_sum(part_of_delta(gout, out, at, lane_pair(), 4));
    if (row >= n || lane_pair() || own_split()) return;
    c.lse[at] = low;
    c.delta[at] = delta;
  });
}

extern "C" __global__ void __launch_bounds__(TEAM) backward_gk_gv(PARAMETERS) {
  const Gradients c = GRADIENTS;
  column_tile<false>(c, column_place(), [](real, wide, int) {});
}
