/* variant {
  "idea": "a block a row, its scores in a row of global memory that is its own",
  "language": "cuda", "symbol": "forward_lane_global", "dtypes": ["float64", "float32"], "requires": ["sm_70"],
  "macros": {"ADV_HD": "head_dim"}, "build_knobs": {"ADV_THREADS": [128, 256]}, "defaults": {"ADV_THREADS": 128},
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads) + 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)",
  "writes": "batch * heads * n * head_dim + 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)",
  "grid": ["n", "batch * heads"], "block": "ADV_THREADS",
  "workspace": "batch * heads * n * n * real_bytes",
  "mapping": "lane: a block a query row, 8 lanes a key, then lanes on the elements of the result; scores written twice",
  "rank": 85
} */
#include "lane.cuh"

extern "C" __global__ void __launch_bounds__(ADV_THREADS) forward_lane_global(FORWARD_ARGUMENTS) {
  real *own = (real *)workspace + (wide(blockIdx.y) * n + blockIdx.x) * n;
  attend_row(q, k, v, out, own, heads, kv_heads, causal, n);
}
