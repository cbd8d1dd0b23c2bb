/* variant {
  "idea": "for few rows: a warp reads a row of the weights once for all of them, 16 bytes a lane; first h, then y",
  "language": "cuda", "symbol": "mlp_few_warp_gate",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_D": "d_model", "ADV_F": "d_ff"},
  "build_knobs": {"ADV_WARPS": [4, 8], "ADV_UNROLL": [4, 8]},
  "defaults": {"ADV_WARPS": 4, "ADV_UNROLL": 4},
  "valid": ["batch * n <= 8"],
  "reads": "d_ff * batch * n * d_model + 3 * d_model * d_ff + (d_model + 1) // 2 * batch * n * d_ff",
  "writes": "batch * n * (d_ff + d_model)",
  "grid": ["(d_ff + ADV_WARPS - 1) // ADV_WARPS"], "block": "32 * ADV_WARPS",
  "then": [{"symbol": "mlp_few_warp_down", "grid": ["(d_model + 2 * ADV_WARPS - 1) // (2 * ADV_WARPS)"], "block": "32 * ADV_WARPS"}],
  "workspace": "batch * n * d_ff * real_bytes",
  "mapping": "a warp takes an element f of h, then two elements d of y, of all rows; its lanes share a row of the weights",
  "rank": 10
} */
#include "few_rows.cuh"
#ifndef ADV_D
#define ADV_D 64
#endif
#ifndef ADV_F
#define ADV_F 256
#endif
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    mlp_few_warp_gate(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                      int d_model, int d_ff, int n) {
  const int f = blockIdx.x * ADV_WARPS + threadIdx.x / 32;
  if (f < ADV_F) gate_of<ADV_D>(x, wg, wu, h, f, ADV_F, batch * n);
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    mlp_few_warp_down(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                      int d_model, int d_ff, int n) {
  const int d = (blockIdx.x * ADV_WARPS + threadIdx.x / 32) * 2;
  if (d < ADV_D)
    two_outputs<ADV_F>(h, wd, d, ADV_D, batch * n, [=](int row, int at, real sum) { y[row * ADV_D + at] = put(sum); });
}
