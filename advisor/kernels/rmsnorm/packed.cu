/* variant {
  "idea": "a thread a row: its sum of squares, then the row once more, as the paper has it",
  "language": "cuda", "symbol": "rmsnorm_packed",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "reads": "2 * batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "grid": ["(batch * n + 127) // 128"], "block": "128",
  "mapping": "packed: a thread takes a row, 128 rows a block; lanes of a warp are a row apart in memory",
  "rank": 60
} */
#include "numbers.cuh"

extern "C" __global__ void __launch_bounds__(128)
    rmsnorm_packed(const store *x, const store *g, store *y, unsigned char *workspace, int batch, int d_model, int n) {
  const wide row = wide(blockIdx.x) * 128 + threadIdx.x;
  if (row >= wide(batch) * n) return;
  real squares = 0;
  for (int e = 0; e < d_model; e++) {
    const real value = get(x[row * d_model + e]);
    squares += value * value;
  }
  const real r = real(1) / sqrt(squares / real(d_model) + EPS);
  for (int e = 0; e < d_model; e++) y[row * d_model + e] = put(get(x[row * d_model + e]) * r * get(g[e]));
}
