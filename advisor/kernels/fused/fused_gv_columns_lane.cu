/* variant {
  "idea": "one loop over rows keeps A and adds to gk by atomic additions of contiguous lanes (sums in the order in which blocks come), then gv by columns",
  "language": "cuda", "symbol": "clear_sums", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128", "n <= 12288"],
  "reads": "batch * n * head_dim * (3 * heads + 2 * kv_heads) + batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 3 * kv_heads) + batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * kv_heads * n * head_dim + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "fused_rows", "grid": ["batch * heads * n"], "block": "128", "shared": "2 * n * real_bytes"},
    {"symbol": "gv_columns", "grid": ["batch * kv_heads * n"], "block": "128"}
  ],
  "workspace": "batch * heads * n * n * real_bytes",
  "mapping": "a block of 128 threads a query row or a row of k and v; lanes on the contiguous index",
  "rank": 89
} */
#include "lanes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) clear_sums(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  clear(c.gk, c.columns() * HD);
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = blockIdx.x;
  const Row row = row_of(c, t);
  real *a = lines, *s = lines + c.n;
  weigh(row, a);
  copy(kept(c, 0, t), a, row.end);
  score(row, a, s);
  output<false>(row, a);
  gradient<true>(row, s);
}

extern "C" __global__ void __launch_bounds__(THREADS) gv_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  column_sum(c, blockIdx.x, c.space, c.gout, c.gv, 1);
}
