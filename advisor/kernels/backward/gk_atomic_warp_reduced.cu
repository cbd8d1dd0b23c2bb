/* variant {
  "idea": "as gk_atomic_packed, but a warp adds up its rows in shuffles before one lane adds to memory; sums of gk in the order in which blocks come",
  "language": "cuda", "symbol": "backward_first", "dtypes": ["float64", "float32"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"}, "build_knobs": {"ADV_PERSIST": [1, 0]}, "defaults": {"ADV_PERSIST": 1},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * (head_dim * (6 * heads + 3 * kv_heads) + heads) + ADV_PERSIST * 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2) + (1 - ADV_PERSIST) * batch * n * (head_dim * (2 * heads + 3 * kv_heads) + 4 * heads)",
  "writes": "batch * n * head_dim * (heads + 3 * kv_heads) + ADV_PERSIST * 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2) + (1 - ADV_PERSIST) * batch * heads * n",
  "atomics": "(batch * heads * (n * n * (2 - causal) + n * causal) // 2) // 32 * head_dim",
  "grid": ["(n + 127) // 128", "batch * heads"], "block": "128",
  "then": [
    {"symbol": "backward_gv", "grid": ["(n + 127) // 128", "batch * kv_heads"], "block": "128"},
    {"symbol": "backward_gq", "grid": ["(n + 127) // 128", "batch * heads"], "block": "128"}],
  "workspace": "batch * heads * n * real_bytes * (ADV_PERSIST * 2 * n + 1 - ADV_PERSIST)",
  "mapping": "packed: a thread a row or column, 128 of them a block; one lane of a warp adds for all its rows", "rank": 71
} */
#include "passes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) backward_first(PARAMETERS) {
  first_pass<PACKED, true>(THE_TASK);
}

extern "C" __global__ void __launch_bounds__(THREADS) backward_gv(PARAMETERS) {
  column_pass<PACKED, false>(THE_TASK);
}

extern "C" __global__ void __launch_bounds__(THREADS) backward_gq(PARAMETERS) {
  reduced_row_pass(THE_TASK);
}
