/* variant {
  "idea": "one loop over rows keeps A and S, then gv and gk by columns",
  "language": "cuda", "symbol": "fused_rows", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128", "n <= 12288"],
  "reads": "batch * n * head_dim * (4 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 2 * batch * heads * (n * ((2 - causal) * n + causal) // 2)",
  "atomics": "0",
  "grid": ["batch * heads * n"], "block": "128", "shared": "2 * n * real_bytes",
  "then": [
    {"symbol": "sum_columns", "grid": ["batch * kv_heads * n"], "block": "128"}
  ],
  "workspace": "2 * batch * heads * n * n * real_bytes",
  "mapping": "a block of 128 threads a query row or a row of k and v; lanes on the contiguous index",
  "rank": 90
} */
#include "lanes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = blockIdx.x;
  const Row row = row_of(c, t);
  real *a = lines, *s = lines + c.n;
  weigh(row, a);
  copy(kept(c, 0, t), a, row.end);
  score(row, a, s);
  copy(kept(c, 1, t), s, row.end);
  output<false>(row, a);
  gradient<false>(row, s);
}

extern "C" __global__ void __launch_bounds__(THREADS) sum_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  column_sum(c, blockIdx.x, c.space, c.gout, c.gv, 1);
  column_sum(c, blockIdx.x, c.space + c.rows() * c.n, c.q, c.gk, scale_of());
}
