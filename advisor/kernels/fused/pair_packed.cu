/* variant {
  "idea": "forward with A kept, then backward from it: gv by columns, S kept, gk by atomic additions (sums in the order in which blocks come)",
  "language": "cuda", "symbol": "forward_rows", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (4 * heads + 4 * kv_heads) + 3 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 3 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * heads * n + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "gv_columns", "grid": ["(batch * kv_heads * n + 127) // 128"], "block": "128"},
    {"symbol": "scores_rows", "grid": ["(batch * heads * n + 127) // 128"], "block": "128"},
    {"symbol": "gradient_rows", "grid": ["(batch * heads * n + 127) // 128"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * n * real_bytes",
  "mapping": "a thread a query row, or a row of k and v, 128 side by side in a block",
  "rank": 70
} */
#define GK_ATOMIC 1
constexpr int SPREAD = 1;
#include "pair.cuh"
