/* variant {
  "idea": "rows give out and gq, then gv and gk by columns, scores computed four times, no atomic addition",
  "language": "cuda", "symbol": "fused_rows", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (6 * heads + 5 * kv_heads) + 3 * batch * heads * n",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 2 * batch * heads * n",
  "atomics": "0",
  "grid": ["(batch * heads * n + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "gv_columns", "grid": ["(batch * kv_heads * n + 127) // 128"], "block": "128"},
    {"symbol": "gk_columns", "grid": ["(batch * kv_heads * n + 127) // 128"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * real_bytes",
  "mapping": "a thread a query row, or a row of k and v, 128 side by side in a block",
  "rank": 87
} */
constexpr int SPREAD = 1;
#include "recomputed.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  attend_and_keep(c, row, t);
  gradient_anew<false>(c, row, t);
}

extern "C" __global__ void __launch_bounds__(THREADS) gv_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t >= 0) gv_column_anew(c, t);
}

extern "C" __global__ void __launch_bounds__(THREADS) gk_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t >= 0) gk_column_anew(c, t);
}
