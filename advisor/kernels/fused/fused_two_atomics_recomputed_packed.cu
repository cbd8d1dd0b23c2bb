/* variant {
  "idea": "one loop over rows does all, scores computed twice, nothing of order n^2 kept, gv and gk by atomic additions (sums in the order in which blocks come)",
  "language": "cuda", "symbol": "clear_sums", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (2 * heads + 2 * kv_heads)",
  "writes": "batch * n * head_dim * (2 * heads + 4 * kv_heads)",
  "atomics": "2 * batch * heads * (n * ((2 - causal) * n + causal) // 2) * head_dim",
  "grid": ["(batch * kv_heads * n * head_dim + 127) // 128"], "block": "128",
  "then": [
    {"symbol": "fused_rows", "grid": ["(batch * heads * n + 127) // 128"], "block": "128"}
  ],
  "mapping": "a thread a query row, or a row of k and v, 128 side by side in a block",
  "rank": 85
} */
constexpr int SPREAD = 1;
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) clear_sums(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  clear(c.gk, c.columns() * HD);
  clear(c.gv, c.columns() * HD);
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  const Statistics found = attend_online(row);
  const real delta = dot(row.out, row.gout), scale = scale_of();
  gradient<true>(row, [=](int j) {
    const real a = power(dot(row.q, row.k + wide(j) * HD) * scale - found.most) / found.total;
    for (int d = 0; d < HD; d++) atomicAdd(&row.gv[wide(j) * HD + d], a * row.gout[d]);
    return a * (dot(row.gout, row.v + wide(j) * HD) - delta);
  });
}
