/* variant {
  "idea": "one loop over rows keeps A and S, then gv and gk by columns",
  "language": "cuda", "symbol": "fused_rows", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (4 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "0",
  "grid": ["(batch * heads * n + 3) // 4"], "block": "128",
  "then": [
    {"symbol": "sum_columns", "grid": ["(batch * kv_heads * n + 3) // 4"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * n * real_bytes",
  "mapping": "one active lane a warp, which takes a query row or a row of k and v; four warps a block",
  "rank": 83
} */
constexpr int SPREAD = 32;
#include "no_atomic.cuh"
