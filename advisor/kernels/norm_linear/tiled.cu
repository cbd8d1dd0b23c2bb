/* variant {
  "idea": "rows of the norm in registers, tiles in shared memory for the product",
  "language": "cuda", "symbol": "norm_linear_tiled_norm",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_D": "d_model"},
  "build_knobs": {"ADV_TM": [2, 4, 8]}, "defaults": {"ADV_TM": 4},
  "valid": ["d_model <= 16384", "item_bytes > 2 or d_model * d_out <= 1048576"],
  "reads": "batch * n * d_model + d_model + across * batch * n * d_model + down * d_model * d_out",
  "writes": "batch * n * (d_model + d_out)",
  "derived": {
    "side": "16 * ADV_TM", "across": "(d_out + side - 1) // side", "down": "(batch * n + side - 1) // side",
    "norms": "(batch * n * (32 + 224 * (d_model > 1024)) + 255) // 256"
  },
  "grid": ["norms"], "block": "256",
  "then": [{"symbol": "norm_linear_tiled_product", "grid": ["across", "down"], "block": "256"}],
  "workspace": "batch * n * d_model * real_bytes",
  "mapping": "norm: a warp a row, a block where rows are wide; product: 16 x 16 threads a tile of outputs, tiles of both operands in shared memory",
  "rank": 20
} */
#include "held_row.cuh"
#include "products.cuh"
#ifndef ADV_TM
#define ADV_TM 4
#endif

extern "C" __global__ void __launch_bounds__(256)
    norm_linear_tiled_norm(const store *x, const store *g, const store *w, store *y, real *normal, int batch, int d_model,
                           int d_out, int n, int side, int across, int down, int norms) {
  norm_rows(x, g, normal, wide(batch) * n);
}

extern "C" __global__ void __launch_bounds__(256)
    norm_linear_tiled_product(const store *x, const store *g, const store *w, store *y, real *normal, int batch, int d_model,
                              int d_out, int n, int side, int across, int down, int norms) {
  const store *const one[1] = {w};
  tile<ADV_TM, ADV_TM, 1>(normal, one, batch * n, d_out, ADV_D,
                          [=](int row, int column, const real *sums) { y[wide(row) * d_out + column] = put(sums[0]); });
}
