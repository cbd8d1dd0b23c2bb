/* variant {
  "idea": "for few rows: every weight is read once for all of them, a warp a row or two of the weights, 16 bytes a lane",
  "language": "cuda", "symbol": "block_few_norm",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim", "ADV_D": "d_model", "ADV_F": "d_ff", "ADV_OWN": "heads * head_dim"},
  "build_knobs": {"ADV_WARPS": [4, 8], "ADV_UNROLL": [4, 8]}, "defaults": {"ADV_WARPS": 4, "ADV_UNROLL": 4},
  "valid": ["batch * n <= 8", "head_dim <= 256", "d_model <= 16384"],
  "reads": "batch * n * (5 * d_model + d_model * ((all + 1) // 2 + d_ff) + (heads * head_dim + d_ff) * ((d_model + 1) // 2)) + d_model * (all + heads * head_dim + 3 * d_ff + 2) + batch * heads * n * n * 2 * head_dim",
  "writes": "batch * n * (4 * d_model + (2 * heads + 2 * kv_heads) * head_dim + d_ff)",
  "derived": {
    "all": "(heads + 2 * kv_heads) * head_dim", "pairs": "(d_model + 2 * ADV_WARPS - 1) // (2 * ADV_WARPS)"
  },
  "grid": ["batch * n"], "block": "256",
  "then": [
    {"symbol": "block_few_project", "grid": ["(all + 2 * ADV_WARPS - 1) // (2 * ADV_WARPS)"], "block": "32 * ADV_WARPS"},
    {"symbol": "block_few_attend", "grid": ["batch * n * heads"], "block": "32"},
    {"symbol": "block_few_mix", "grid": ["pairs"], "block": "32 * ADV_WARPS"},
    {"symbol": "block_few_norm_again", "grid": ["batch * n"], "block": "256"},
    {"symbol": "block_few_gate", "grid": ["(d_ff + ADV_WARPS - 1) // ADV_WARPS"], "block": "32 * ADV_WARPS"},
    {"symbol": "block_few_down", "grid": ["pairs"], "block": "32 * ADV_WARPS"}
  ],
  "workspace": "(batch * n * (2 * d_model + all + heads * head_dim + d_ff) + 16) * real_bytes",
  "mapping": "norms: a block a row; products: a warp takes two rows of the weights, or an element of h; attention: a warp a query row of a head",
  "rank": 8
} */
#include "chain.cuh"
#include "few_rows.cuh"
#include "held_row.cuh"
#ifndef ADV_F
#define ADV_F 256
#endif
#ifndef ADV_OWN
#define ADV_OWN 64
#endif
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif

#define LAUNCHED ARGUMENTS, int all_, int pairs
#define OWN_WARP (blockIdx.x * ADV_WARPS + threadIdx.x / 32)

extern "C" __global__ void __launch_bounds__(256) block_few_norm(LAUNCHED) {
  CHAIN;
  norm_row<256>(x + wide(blockIdx.x) * ADV_D, g1, c.normal + wide(blockIdx.x) * ADV_D, threadIdx.x, true);
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS) block_few_project(LAUNCHED) {
  CHAIN;
  const int p = OWN_WARP * 2, all = int(c.all);
  if (p < all)
    two_outputs<ADV_D>(c.normal, wqkv, p, all, int(c.rows), [=](int row, int at, real sum) { c.qkv[row * all + at] = sum; });
}

/* One query row of one head by one warp; lanes share the elements of a head. */
extern "C" __global__ void __launch_bounds__(32) block_few_attend(LAUNCHED) {
  CHAIN;
  constexpr int OWN = (ADV_HD + 31) / 32;
  const int row = blockIdx.x / heads, h = blockIdx.x % heads, g = h / (heads / kv_heads), at = row % n, lane = threadIdx.x;
  const real *first = c.qkv + (row - at) * c.all, scale = score_scale();
  real q[OWN], sum[OWN], most = LOWEST, total = 0;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    q[i] = lane + 32 * i < ADV_HD ? c.qkv[row * c.all + h * ADV_HD + lane + 32 * i] * scale : real(0);
    sum[i] = 0;
  }
  for (int j = 0; j < (causal ? at + 1 : n); j++) {
    const real *k = first + j * c.all + c.own + g * ADV_HD, *v = k + kv_heads * ADV_HD;
    real s = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++)
      if (lane + 32 * i < ADV_HD) s = fma(q[i], k[lane + 32 * i], s);
    s = lanes_sum<32>(s);
    const real shrink = grown(most, max(most, s)), weight = exp2(s - most);
    total = total * shrink + weight;
#pragma unroll
    for (int i = 0; i < OWN; i++)
      if (lane + 32 * i < ADV_HD) sum[i] = fma(weight, v[lane + 32 * i], sum[i] * shrink);
  }
#pragma unroll
  for (int i = 0; i < OWN; i++)
    if (lane + 32 * i < ADV_HD) c.mixed[row * c.own + h * ADV_HD + lane + 32 * i] = sum[i] / total;
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS) block_few_mix(LAUNCHED) {
  CHAIN;
  const int d = OWN_WARP * 2;
  if (d < ADV_D)
    two_outputs<ADV_OWN>(c.mixed, wo, d, ADV_D, int(c.rows), [=](int row, int at, real sum) {
      const int i = row * ADV_D + at;
      c.middle[i] = get(x[i]) + sum;
    });
}

extern "C" __global__ void __launch_bounds__(256) block_few_norm_again(LAUNCHED) {
  CHAIN;
  norm_row<256>(c.middle + wide(blockIdx.x) * ADV_D, g2, c.normal + wide(blockIdx.x) * ADV_D, threadIdx.x, true);
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS) block_few_gate(LAUNCHED) {
  CHAIN;
  if (OWN_WARP < ADV_F) gate_of<ADV_D>(c.normal, wg, wu, c.h, OWN_WARP, ADV_F, int(c.rows));
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS) block_few_down(LAUNCHED) {
  CHAIN;
  const int d = OWN_WARP * 2;
  if (d < ADV_D)
    two_outputs<ADV_F>(c.h, wd, d, ADV_D, int(c.rows), [=](int row, int at, real sum) {
      const int i = row * ADV_D + at;
      y[i] = put(c.middle[i] + sum);
    });
}
