/* variant {
  "idea": "a block takes a row and holds it in registers: a wide row is read once, its sum goes through shared memory",
  "language": "cuda", "symbol": "rmsnorm_lane",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_D": "d_model"},
  "build_knobs": {"ADV_THREADS": [64, 128, 256, 512, 1024]},
  "defaults": {"ADV_THREADS": 256},
  "valid": ["d_model <= 64 * ADV_THREADS", "ADV_THREADS <= max(64, d_model)"],
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "grid": ["batch * n"], "block": "ADV_THREADS",
  "mapping": "lane: a block takes a row, lanes on the contiguous index, 16 bytes a lane",
  "rank": 20
} */
#include "held_row.cuh"
#ifndef ADV_THREADS
#define ADV_THREADS 256
#endif

extern "C" __global__ void __launch_bounds__(ADV_THREADS)
    rmsnorm_lane(const store *x, const store *g, store *y, unsigned char *workspace, int batch, int d_model, int n) {
  const wide row = blockIdx.x;
  norm_row<ADV_THREADS>(x + row * ADV_D, g, y + row * ADV_D, threadIdx.x, true);
}
