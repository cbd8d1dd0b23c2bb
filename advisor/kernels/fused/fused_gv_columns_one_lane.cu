/* variant {
  "idea": "one loop over rows keeps A and adds to gk atomically (sums in the order in which blocks come), then gv by columns",
  "language": "cuda", "symbol": "clear_sums", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (3 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 3 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * kv_heads * n * head_dim + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "fused_rows", "grid": ["(batch * heads * n + 3) // 4"], "block": "128"},
    {"symbol": "gv_columns", "grid": ["(batch * kv_heads * n + 3) // 4"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * n * real_bytes",
  "mapping": "one active lane a warp, which takes a query row or a row of k and v; four warps a block",
  "rank": 80
} */
constexpr int SPREAD = 32;
#include "gv_columns.cuh"
