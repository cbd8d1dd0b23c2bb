/* variant {
  "idea": "for few rows: a block a row for the norm, then a warp reads two rows of the weights once for all of them",
  "language": "cuda", "symbol": "norm_linear_few_norm",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_D": "d_model"},
  "build_knobs": {"ADV_WARPS": [4, 8], "ADV_UNROLL": [4, 8]}, "defaults": {"ADV_WARPS": 4, "ADV_UNROLL": 4},
  "valid": ["batch * n <= 8", "d_model <= 16384"],
  "reads": "batch * n * d_model + d_model + (d_out + 1) // 2 * batch * n * d_model + d_model * d_out",
  "writes": "batch * n * (d_model + d_out)",
  "grid": ["batch * n"], "block": "256",
  "then": [{"symbol": "norm_linear_few_product", "grid": ["(d_out + 2 * ADV_WARPS - 1) // (2 * ADV_WARPS)"], "block": "32 * ADV_WARPS"}],
  "workspace": "batch * n * d_model * real_bytes",
  "mapping": "norm: a block a row; product: a warp takes two outputs of all rows, its lanes share a row of the weights",
  "rank": 10
} */
#include "few_rows.cuh"
#include "held_row.cuh"
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif

extern "C" __global__ void __launch_bounds__(256)
    norm_linear_few_norm(const store *x, const store *g, const store *w, store *y, real *normal, int batch, int d_model,
                         int d_out, int n) {
  const wide row = blockIdx.x;
  norm_row<256>(x + row * ADV_D, g, normal + row * ADV_D, threadIdx.x, true);
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    norm_linear_few_product(const store *x, const store *g, const store *w, store *y, real *normal, int batch, int d_model,
                            int d_out, int n) {
  const int o = (blockIdx.x * ADV_WARPS + threadIdx.x / 32) * 2;
  if (o < d_out)
    two_outputs<ADV_D>(normal, w, o, d_out, batch * n, [=](int row, int at, real sum) { y[row * d_out + at] = put(sum); });
}
