/* variant {
  "idea": "for few rows: a warp reads a row of the weights once for all of them, 16 bytes a lane; first h, then y",
  "language": "cuda", "symbol": "mlp_few_warp_gate",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_D": "d_model", "ADV_F": "d_ff"},
  "build_knobs": {"ADV_WARPS": [4, 8, 16], "ADV_UNROLL": [2, 4]},
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
#include "numbers.cuh"
#ifndef ADV_D
#define ADV_D 64
#endif
#ifndef ADV_F
#define ADV_F 256
#endif
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif
#ifndef ADV_UNROLL
#define ADV_UNROLL 4
#endif

/* sum[m][r] += row r of a [rows][LENGTH] times row m of the weights, over what this lane has of LENGTH. */
template <int LENGTH, int MATRICES, int ROWS, typename A>
INLINE void dots(real (&sum)[MATRICES][ROWS], const A *a, const store *const (&w)[MATRICES], int rows) {
  constexpr int STEP = LENGTH % VEC == 0 ? VEC : 1, SPAN = 32 * STEP;
  for (int first = threadIdx.x % 32 * STEP; first < LENGTH; first += ADV_UNROLL * SPAN) {
    __align__(16) store piece[ADV_UNROLL][MATRICES][STEP];
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++)
#pragma unroll
      for (int m = 0; m < MATRICES; m++)
        if (first + u * SPAN < LENGTH) take<STEP>(w[m] + first + u * SPAN, piece[u][m]);
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) {
      const int at = first + u * SPAN;
      if (at >= LENGTH) break;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (r >= rows) break;
        real own[STEP];
        take_real<STEP>(a + r * LENGTH + at, own);
#pragma unroll
        for (int e = 0; e < STEP; e++)
#pragma unroll
          for (int m = 0; m < MATRICES; m++) sum[m][r] = fma(own[e], get(piece[u][m][e]), sum[m][r]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < MATRICES; m++)
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum[m][r] = lanes_sum<32>(sum[m][r]);
}

template <int ROWS> INLINE void gate(const store *x, const store *wg, const store *wu, real *h, int f, int rows) {
  real sum[2][ROWS] = {};
  const store *const both[2] = {wg + wide(f) * ADV_D, wu + wide(f) * ADV_D};
  dots<ADV_D>(sum, x, both, rows);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (threadIdx.x % 32 == r && r < rows) h[r * ADV_F + f] = silu(sum[0][r]) * sum[1][r];
}

/* Two elements of y: what a lane reads of h, which is wider than the weights, serves both. */
template <int ROWS> INLINE void down(const real *h, const store *wd, store *y, int d, int rows) {
  real sum[2][ROWS] = {};
  const store *const both[2] = {wd + wide(d) * ADV_F, wd + wide(min(d + 1, ADV_D - 1)) * ADV_F};
  dots<ADV_F>(sum, h, both, rows);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int m = 0; m < 2; m++)
      if (threadIdx.x % 32 == 2 * r + m && r < rows && d + m < ADV_D) y[r * ADV_D + d + m] = put(sum[m][r]);
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    mlp_few_warp_gate(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch, int d_model,
                 int d_ff, int n) {
  const int f = blockIdx.x * ADV_WARPS + threadIdx.x / 32, rows = batch * n;
  if (f >= ADV_F) return;
  if (rows == 1) gate<1>(x, wg, wu, h, f, rows);
  else if (rows == 2) gate<2>(x, wg, wu, h, f, rows);
  else if (rows <= 4) gate<4>(x, wg, wu, h, f, rows);
  else gate<8>(x, wg, wu, h, f, rows);
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    mlp_few_warp_down(const store *x, const store *wg, const store *wu, const store *wd, store *y, real *h, int batch, int d_model,
                 int d_ff, int n) {
  const int d = (blockIdx.x * ADV_WARPS + threadIdx.x / 32) * 2, rows = batch * n;
  if (d >= ADV_D) return;
  if (rows == 1) down<1>(h, wd, y, d, rows);
  else if (rows == 2) down<2>(h, wd, y, d, rows);
  else if (rows <= 4) down<4>(h, wd, y, d, rows);
  else down<8>(h, wd, y, d, rows);
}
