/* variant {
  "idea": "a block a row, its scores in shared memory: nothing of order n by n is ever written",
  "language": "cuda", "symbol": "forward_lane_shared", "dtypes": ["float64", "float32"], "requires": ["sm_70"],
  "macros": {"ADV_HD": "head_dim"}, "build_knobs": {"ADV_THREADS": [128, 256]}, "defaults": {"ADV_THREADS": 128},
  "valid": ["n <= 24576"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "grid": ["n", "batch * heads"], "block": "ADV_THREADS", "shared": "n * real_bytes",
  "mapping": "lane: a block a query row, 8 lanes a key, then lanes on the elements of the result; k and v again for each",
  "rank": 80
} */
#include "lane.cuh"

extern "C" __global__ void __launch_bounds__(ADV_THREADS) forward_lane_shared(FORWARD_ARGUMENTS) {
  extern __shared__ real scores[];
  attend_row(q, k, v, out, scores, heads, kv_heads, causal, n);
}
