/* variant {
  "idea": "one loop over rows does all, A and S in shared memory, gv and gk by atomic additions of contiguous lanes (sums in the order in which blocks come)",
  "language": "cuda", "symbol": "clear_sums", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128", "n <= 12288"],
  "reads": "batch * n * head_dim * (2 * heads + 2 * kv_heads)",
  "writes": "batch * n * head_dim * (2 * heads + 4 * kv_heads)",
  "atomics": "2 * batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * kv_heads * n * head_dim + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "fused_rows", "grid": ["batch * heads * n"], "block": "128", "shared": "2 * n * real_bytes"}
  ],
  "mapping": "a block of 128 threads a query row or a row of k and v; lanes on the contiguous index",
  "rank": 88
} */
#include "lanes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) clear_sums(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  clear(c.gk, c.columns() * HD);
  clear(c.gv, c.columns() * HD);
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = blockIdx.x;
  const Row row = row_of(c, t);
  real *a = lines, *s = lines + c.n;
  weigh(row, a);
  score(row, a, s);
  output<true>(row, a);
  gradient<true>(row, s);
}
