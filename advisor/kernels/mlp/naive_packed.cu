/* variant {
  "idea": "a thread a row: all of its h, then all of its y, as the paper has it",
  "language": "cuda", "symbol": "mlp_naive_packed_gate",
  "dtypes": ["float64", "float32"], "requires": ["sm_80"],
  "valid": ["batch * n * d_model * d_ff <= 1073741824"],
  "reads": "6 * batch * n * d_ff * d_model", "writes": "batch * n * (d_ff + d_model)",
  "grid": ["(batch * n + 127) // 128"], "block": "128",
  "then": [{"symbol": "mlp_naive_packed_down", "grid": ["(batch * n + 127) // 128"], "block": "128"}],
  "workspace": "batch * n * d_ff * real_bytes",
  "mapping": "packed: a thread takes a row, 128 rows a block; lanes share a weight and are a row apart in x and h",
  "rank": 80
} */
#include "products.cuh"

extern "C" __global__ void __launch_bounds__(128)
    mlp_naive_packed_gate(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                          int d_model, int d_ff, int n) {
  const wide row = wide(blockIdx.x) * 128 + threadIdx.x;
  if (row >= wide(batch) * n) return;
  for (int f = 0; f < d_ff; f++) {
    const wide at = wide(f) * d_model;
    h[row * d_ff + f] = silu(dot(x + row * d_model, wg + at, d_model)) * dot(x + row * d_model, wu + at, d_model);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    mlp_naive_packed_down(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                          int d_model, int d_ff, int n) {
  const wide row = wide(blockIdx.x) * 128 + threadIdx.x;
  if (row >= wide(batch) * n) return;
  for (int d = 0; d < d_model; d++) y[row * d_model + d] = put(dot(h + row * d_ff, wd + wide(d) * d_ff, d_ff));
}
