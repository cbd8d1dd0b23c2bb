/* variant {
  "idea": "as no_atomic_packed with one active lane a warp",
  "language": "cuda", "symbol": "backward_first", "dtypes": ["float64", "float32"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"}, "build_knobs": {"ADV_PERSIST": [1, 0]}, "defaults": {"ADV_PERSIST": 1},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * (head_dim * (6 * heads + 3 * kv_heads) + heads) + ADV_PERSIST * 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2) + (1 - ADV_PERSIST) * batch * n * (head_dim * (2 * heads + 3 * kv_heads) + 4 * heads)",
  "writes": "batch * n * head_dim * (heads + 2 * kv_heads) + ADV_PERSIST * 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2) + (1 - ADV_PERSIST) * batch * heads * n",
  "atomics": "0",
  "grid": ["(n + 3) // 4", "batch * heads"], "block": "128",
  "then": [
    {"symbol": "backward_gv", "grid": ["(n + 3) // 4", "batch * kv_heads"], "block": "128"},
    {"symbol": "backward_gq", "grid": ["(n + 3) // 4", "batch * heads"], "block": "128"},
    {"symbol": "backward_gk", "grid": ["(n + 3) // 4", "batch * kv_heads"], "block": "128"}],
  "workspace": "batch * heads * n * real_bytes * (ADV_PERSIST * 2 * n + 1 - ADV_PERSIST)",
  "mapping": "one_lane: the first lane of each warp has a row or column, 4 of them a block", "rank": 73
} */
#include "passes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) backward_first(PARAMETERS) {
  first_pass<ONE_LANE, false>(THE_TASK);
}

extern "C" __global__ void __launch_bounds__(THREADS) backward_gv(PARAMETERS) {
  column_pass<ONE_LANE, false>(THE_TASK);
}

extern "C" __global__ void __launch_bounds__(THREADS) backward_gq(PARAMETERS) {
  row_pass<ONE_LANE, false, false>(THE_TASK);
}

extern "C" __global__ void __launch_bounds__(THREADS) backward_gk(PARAMETERS) {
  column_pass<ONE_LANE, true>(THE_TASK);
}
