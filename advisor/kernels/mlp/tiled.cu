/* variant {
  "idea": "tiles in shared memory: both inner products of a tile in one kernel with the gate at their end, then the outer one",
  "language": "cuda", "symbol": "mlp_tiled_gate",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "build_knobs": {"ADV_TM": [2, 4, 8], "ADV_TN": [2, 4]},
  "defaults": {"ADV_TM": 4, "ADV_TN": 4},
  "valid": ["item_bytes > 2 or d_model * d_ff <= 1048576"],
  "reads": "across * batch * n * d_model + 2 * down * d_ff * d_model + out * batch * n * d_ff + down * d_model * d_ff", "writes": "batch * n * (d_ff + d_model)",
  "derived": {
    "across": "(d_ff + 16 * ADV_TN - 1) // (16 * ADV_TN)",
    "out": "(d_model + 16 * ADV_TM - 1) // (16 * ADV_TM)",
    "down": "(batch * n + 16 * ADV_TM - 1) // (16 * ADV_TM)"
  },
  "grid": ["across", "down"], "block": "256",
  "then": [{"symbol": "mlp_tiled_down", "grid": ["out", "down"], "block": "256"}],
  "workspace": "batch * n * d_ff * real_bytes",
  "mapping": "tiled: a block of 16 x 16 threads takes a tile of outputs, tiles of both operands in shared memory; a thread holds ADV_TM x ADV_TN results",
  "rank": 20
} */
#include "products.cuh"
#ifndef ADV_TM
#define ADV_TM 4
#endif
#ifndef ADV_TN
#define ADV_TN 4
#endif

extern "C" __global__ void __launch_bounds__(256)
    mlp_tiled_gate(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch, int d_model,
                   int d_ff, int n, int across, int out, int down) {
  const store *const both[2] = {wg, wu};
  tile<ADV_TM, ADV_TN, 2>(x, both, batch * n, d_ff, d_model, Gate{h, d_ff});
}

/* A square of results a thread: with one product its sums are half of what the gate's are. */
extern "C" __global__ void __launch_bounds__(256)
    mlp_tiled_down(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch, int d_model,
                   int d_ff, int n, int across, int out, int down) {
  const store *const one[1] = {wd};
  tile<ADV_TM, ADV_TM, 1>(h, one, batch * n, d_model, d_ff,
                          [=](int row, int column, const real *sums) { y[wide(row) * d_model + column] = put(sums[0]); });
}
