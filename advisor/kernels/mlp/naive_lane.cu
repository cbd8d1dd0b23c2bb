/* variant {
  "idea": "a thread an output element: first of h, then of y, each sum by one thread",
  "language": "cuda", "symbol": "mlp_naive_lane_gate",
  "dtypes": ["float64", "float32"], "requires": ["sm_80"],
  "valid": ["batch * n * d_model * d_ff <= 17179869184"],
  "reads": "6 * batch * n * d_ff * d_model", "writes": "batch * n * (d_ff + d_model)",
  "grid": ["(batch * n * d_ff + 127) // 128"], "block": "128",
  "then": [{"symbol": "mlp_naive_lane_down", "grid": ["(batch * n * d_model + 127) // 128"], "block": "128"}],
  "workspace": "batch * n * d_ff * real_bytes",
  "mapping": "lane: a thread takes an output element, lanes on the contiguous index; they share a row of x and are a row apart in the weights",
  "rank": 70
} */
#include "products.cuh"

extern "C" __global__ void __launch_bounds__(128)
    mlp_naive_lane_gate(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                        int d_model, int d_ff, int n) {
  const wide i = wide(blockIdx.x) * 128 + threadIdx.x, row = i / d_ff, at = i % d_ff * d_model;
  if (row >= wide(batch) * n) return;
  h[i] = silu(dot(x + row * d_model, wg + at, d_model)) * dot(x + row * d_model, wu + at, d_model);
}

extern "C" __global__ void __launch_bounds__(128)
    mlp_naive_lane_down(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                        int d_model, int d_ff, int n) {
  const wide i = wide(blockIdx.x) * 128 + threadIdx.x, row = i / d_model;
  if (row >= wide(batch) * n) return;
  y[i] = put(dot(h + row * d_ff, wd + i % d_model * d_ff, d_ff));
}
