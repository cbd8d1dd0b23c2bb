/* variant {
  "idea": "tiles on the tensor cores, float32 cut into parts, each score computed once: gk and gv by columns leave GS in memory, from which gq is made by rows",
  "language": "cuda", "symbol": "backward_first", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_TILES": [1, 2, 4], "ADV_SPLITS": [1, 2, 4, 8], "ADV_STEP": [16, 32], "ADV_STAGES": [1, 2]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 4, "ADV_STEP": 16, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "ADV_TILES * ADV_SPLITS >= 4 and ADV_TILES * ADV_SPLITS <= 8",
            "(32 * ADV_TILES + 2 * ADV_SPLITS * ADV_STEP * ADV_STAGES) * (head_dim * item_bytes + 16) <= 232448"],
  "reads": "batch * n * (head_dim * (4 * heads + 3 * kv_heads) + 3 * heads) + batch * heads * (n * n * (2 - causal) + n * causal) // 2",
  "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + 2 * heads) + batch * heads * (n * n * (2 - causal) + n * causal) // 2",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)",
    "row_bytes": "head_dim * real_bytes + 16",
    "tile_bytes": "2 * ADV_STAGES * ADV_SPLITS * ADV_STEP * row_bytes"
  },
  "grid": ["(n + 3) // 4", "batch * heads"], "block": "128",
  "then": [
    {"symbol": "backward_gk_gv", "grid": ["tiles", "batch * kv_heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
     "shared": "32 * ADV_TILES * row_bytes + tile_bytes"},
    {"symbol": "backward_gq", "grid": ["tiles", "batch * heads"], "block": "32 * ADV_TILES * ADV_SPLITS", "shared": "tile_bytes"}],
  "workspace": "batch * heads * n * (2 + n) * real_bytes",
  "mapping": "tiled: a warp takes sixteen rows, warps of one tile share what streams by through shared memory", "rank": 19
} */
#include "tensor.cuh"

/* GS [b*h][n][n] lies behind lse and delta. */
__device__ __forceinline__ real *kept(const Gradients &c, unsigned char *workspace, int rows) {
  return (real *)workspace + 2 * wide(rows) * c.n;
}

extern "C" __global__ void __launch_bounds__(128) backward_first(PARAMETERS) {
  const Gradients c = GRADIENTS;
  first_rows<false>(c, out, lse);
}

extern "C" __global__ void __launch_bounds__(TEAM) backward_gk_gv(PARAMETERS) {
  const Gradients c = GRADIENTS;
  real *slopes = kept(c, workspace, batch * heads);
  column_tile<false>(c, column_place(), [=](real s, wide row, int j) {
    if (j < n) slopes[row * n + j] = s;
  });
}

extern "C" __global__ void __launch_bounds__(TEAM) backward_gq(PARAMETERS) {
  const Gradients c = GRADIENTS;
  const real *slopes = kept(c, workspace, batch * heads);
  kept_row_tile(c, query_place(causal), [=](wide row, int j) { return slopes[row * n + j]; });
}
