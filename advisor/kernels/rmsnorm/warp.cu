/* variant {
  "idea": "a warp, or a part of one, takes a row and holds it in registers: x is read once, no thread waits for a block",
  "language": "cuda", "symbol": "rmsnorm_warp",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_D": "d_model"},
  "build_knobs": {"ADV_TEAM": [8, 16, 32], "ADV_WARPS": [1, 4, 8]},
  "defaults": {"ADV_TEAM": 32, "ADV_WARPS": 4},
  "valid": ["d_model <= 64 * ADV_TEAM"],
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "derived": {"rows": "32 * ADV_WARPS // ADV_TEAM"},
  "grid": ["(batch * n + rows - 1) // rows"], "block": "32 * ADV_WARPS",
  "mapping": "ADV_TEAM lanes of a warp take a row, 16 bytes a lane; ADV_WARPS warps a block",
  "rank": 10
} */
#include "held_row.cuh"
#ifndef ADV_TEAM
#define ADV_TEAM 32
#endif
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    rmsnorm_warp(const store *x, const store *g, store *y, unsigned char *workspace, int batch, int d_model, int n, int rows) {
  const wide all = wide(batch) * n, row = wide(blockIdx.x) * rows + threadIdx.x / ADV_TEAM, mine = row < all ? row : all - 1;
  norm_row<ADV_TEAM>(x + mine * ADV_D, g, y + mine * ADV_D, threadIdx.x % ADV_TEAM, row < all);
}
