/* variant {
  "idea": "as tiled, on the tensor cores in the accuracy of the arithmetic: float64 as it is, float32 in parts",
  "language": "cuda", "symbol": "mlp_tensor_gate",
  "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "64", "ADV_TILES": "1", "ADV_SPLITS": "1", "ADV_STEP": "32", "ADV_STAGES": "1"},
  "reads": "across * batch * n * d_model + 2 * down * d_ff * d_model + out * batch * n * d_ff + down * d_model * d_ff",
  "writes": "batch * n * (d_ff + d_model)",
  "derived": {"across": "(d_ff + 63) // 64", "out": "(d_model + 63) // 64", "down": "(batch * n + 63) // 64"},
  "grid": ["across", "down"], "block": "256",
  "then": [{"symbol": "mlp_tensor_down", "grid": ["out", "down"], "block": "256"}],
  "workspace": "batch * n * d_ff * real_bytes",
  "mapping": "tiled: eight warps take a tile of 64 x 64 outputs, tiles of both operands in shared memory; a warp holds 16 x 32 of each product",
  "rank": 18
} */
#include "tensor_products.cuh"

extern "C" __global__ void __launch_bounds__(256)
    mlp_tensor_gate(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                    int d_model, int d_ff, int n, int across, int out, int down) {
  const store *const both[2] = {wg, wu};
  tensor_tile<2>(x, both, batch * n, d_ff, d_model, Gate{h, d_ff});
}

extern "C" __global__ void __launch_bounds__(256)
    mlp_tensor_down(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch,
                    int d_model, int d_ff, int n, int across, int out, int down) {
  const store *const one[1] = {wd};
  tensor_tile<1>(h, one, batch * n, d_model, d_ff,
                 [=](int row, int column, const real *sums) { y[wide(row) * d_model + column] = put(sums[0]); });
}
