/* variant {
  "idea": "one loop over rows does all, A and S private rows in memory, gv and gk by atomic additions (sums in the order in which blocks come)",
  "language": "cuda", "symbol": "clear_sums", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 4 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "2 * batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * kv_heads * n * head_dim + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "fused_rows", "grid": ["(batch * heads * n + 3) // 4"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * n * real_bytes",
  "mapping": "one active lane a warp, which takes a query row or a row of k and v; four warps a block",
  "rank": 77
} */
constexpr int SPREAD = 32;
#include "two_atomics.cuh"
