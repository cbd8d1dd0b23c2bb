/* variant {
  "idea": "a thread a row: its scores, weights and sums one after another, all of P in memory as the paper has it",
  "language": "cuda", "symbol": "forward_packed", "dtypes": ["float64", "float32"], "requires": ["sm_60"],
  "macros": {"ADV_HD": "head_dim"}, "valid": ["head_dim <= 128"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads) + 2 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)",
  "writes": "batch * heads * n * head_dim + 3 * (batch * heads * (n * n * (2 - causal) + n * causal) // 2)",
  "grid": ["(n + 127) // 128", "batch * heads"], "block": "128",
  "workspace": "batch * heads * n * n * real_bytes",
  "mapping": "packed: a thread a query row, 128 rows a block; adjacent threads are a row of P apart", "rank": 90
} */
#include "plain.cuh"

extern "C" __global__ void __launch_bounds__(128) forward_packed(FORWARD_ARGUMENTS) {
  const int i = blockIdx.x * 128 + threadIdx.x, head = blockIdx.y;
  if (i >= n) return;
  const wide row = wide(head) * n + i, first = keys_of(head, heads, kv_heads, n);
  const real *mine = q + row * ADV_HD, *keys = k + first * ADV_HD, *values = v + first * ADV_HD;
  real *p = (real *)workspace + row * n;
  const int end = causal ? i + 1 : n;
  const real scale = score_scale();
  real most = LOWEST, total = 0, sum[ADV_HD];
  for (int j = 0; j < end; j++) {
    real s = 0;
    for (int d = 0; d < ADV_HD; d++) s += mine[d] * keys[wide(j) * ADV_HD + d];
    s *= scale;
    p[j] = s;
    most = max(most, s);
  }
  for (int j = 0; j < end; j++) {
    const real e = power(p[j] - most);
    p[j] = e;
    total += e;
  }
#pragma unroll
  for (int d = 0; d < ADV_HD; d++) sum[d] = 0;
  for (int j = 0; j < end; j++) {
    const real w = p[j] / total;
    p[j] = w;
#pragma unroll
    for (int d = 0; d < ADV_HD; d++) sum[d] += w * values[wide(j) * ADV_HD + d];
  }
#pragma unroll
  for (int d = 0; d < ADV_HD; d++) out[row * ADV_HD + d] = sum[d];
}
