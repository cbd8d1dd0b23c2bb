/* variant {
  "idea": "forward with A kept, then backward from it with S kept, gv and gk by columns",
  "language": "cuda", "symbol": "forward_rows", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128", "n <= 24576"],
  "reads": "batch * n * head_dim * (4 * heads + 4 * kv_heads) + 4 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "0",
  "grid": ["batch * heads * n"], "block": "128", "shared": "n * real_bytes",
  "then": [
    {"symbol": "gv_columns", "grid": ["batch * kv_heads * n"], "block": "128"},
    {"symbol": "scores_rows", "grid": ["batch * heads * n"], "block": "128"},
    {"symbol": "gradient_rows", "grid": ["batch * heads * n"], "block": "128"},
    {"symbol": "gk_columns", "grid": ["batch * kv_heads * n"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * n * real_bytes",
  "mapping": "a block of 128 threads a query row or a row of k and v; lanes on the contiguous index",
  "rank": 75
} */
#define GK_ATOMIC 0
#include "pair_lanes.cuh"
