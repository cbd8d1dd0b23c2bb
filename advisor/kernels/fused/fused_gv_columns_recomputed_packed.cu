/* variant {
  "idea": "one loop over rows adds to gk atomically (sums in the order in which blocks come), then gv by columns, scores computed three times",
  "language": "cuda", "symbol": "clear_sums", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (4 * heads + 3 * kv_heads) + batch * heads * n",
  "writes": "batch * n * head_dim * (2 * heads + 3 * kv_heads) + 2 * batch * heads * n",
  "atomics": "batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * kv_heads * n * head_dim + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "fused_rows", "grid": ["(batch * heads * n + 127) // 128"], "block": "128"},
    {"symbol": "gv_columns", "grid": ["(batch * kv_heads * n + 127) // 128"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "a thread a query row, or a row of k and v, 128 side by side in a block",
  "rank": 86
} */
constexpr int SPREAD = 1;
#include "recomputed.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) clear_sums(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  clear(c.gk, c.columns() * HD);
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  attend_and_keep(c, row, t);
  gradient_anew<true>(c, row, t);
}

extern "C" __global__ void __launch_bounds__(THREADS) gv_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t >= 0) gv_column_anew(c, t);
}
