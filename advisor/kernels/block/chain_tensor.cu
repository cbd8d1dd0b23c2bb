/* variant {
  "idea": "as chain_tiled, all products on the tensor cores in the accuracy of the arithmetic: float64 as it is, float32 in parts",
  "language": "cuda", "symbol": "block_tensor_norm",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim", "ADV_D": "d_model"},
  "build_knobs": {"ADV_TILES": [1, 2, 4], "ADV_SPLITS": [1, 4], "ADV_STEP": [32], "ADV_STAGES": [1]},
  "defaults": {"ADV_TILES": 2, "ADV_SPLITS": 1, "ADV_STEP": 32, "ADV_STAGES": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "item_bytes > 2 or d_model * d_ff <= 1048576", "d_model <= 16384",
            "ADV_TILES * ADV_SPLITS <= 8", "batch * heads <= 65535"],
  "reads": "batch * n * (4 * d_model + out * heads * head_dim + 2 * d_model + out * d_ff + (wide_all + wide_ff) * d_model) + down * d_model * (all + heads * head_dim + 3 * d_ff) + batch * heads * ((n + tall - 1) // tall) * n * 2 * head_dim",
  "writes": "batch * n * (4 * d_model + (2 * heads + 2 * kv_heads) * head_dim + d_ff)",
  "derived": {
    "side": "64", "all": "(heads + 2 * kv_heads) * head_dim", "down": "(batch * n + side - 1) // side",
    "wide_all": "(all + side - 1) // side", "wide_ff": "(d_ff + 63) // 64", "out": "(d_model + side - 1) // side",
    "tall": "16 * ADV_TILES",
    "norms": "(batch * n * (32 + 224 * (d_model > 1024)) + 255) // 256"
  },
  "grid": ["norms"], "block": "256",
  "then": [
    {"symbol": "block_tensor_project", "grid": ["wide_all", "down"], "block": "256"},
    {"symbol": "block_tensor_attend", "grid": ["(n + tall - 1) // tall", "batch * heads"], "block": "32 * ADV_TILES * ADV_SPLITS",
     "shared": "(tall + 2 * ADV_SPLITS * ADV_STEP) * (head_dim * real_bytes + 16)"},
    {"symbol": "block_tensor_mix", "grid": ["out", "down"], "block": "256"},
    {"symbol": "block_tensor_norm_again", "grid": ["norms"], "block": "256"},
    {"symbol": "block_tensor_gate", "grid": ["wide_ff", "down"], "block": "256"},
    {"symbol": "block_tensor_down", "grid": ["out", "down"], "block": "256"}
  ],
  "workspace": "(batch * n * (2 * d_model + all + heads * head_dim + d_ff) + 16) * real_bytes",
  "mapping": "norms: a warp a row, a block where rows are wide; products: eight warps a tile of 64 x 64 outputs; attention: a warp takes sixteen rows of a tile, warps of one tile share the keys",
  "rank": 30
} */
#define TILE(COUNT) tensor_tile<COUNT>
#include "tensor_products.cuh"
#include "chain_steps.cuh"

#define LAUNCHED ARGUMENTS, int side, int all_, int down, int wide_all, int wide_ff, int out, int tall, int norms

/* What a lane knows of the two rows that it has a part of, beside their sums. */
struct Running { real most[2], total[2]; };

/* Scores of sixteen rows with STEP keys become weights; what was summed shrinks where a larger score came. `ends`: one
   past the last key that a row attends to, seen from the first of these. */
INLINE void weigh(Running &my, Sum<HD> &sum, Sum<STEP> &s, const int (&ends)[2]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    real top = LOWEST;
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
      for (int e = 2 * h; e < 2 * h + 2; e++)
        if (column_in_tile(j, e) < ends[h]) top = max(top, s.c[j][e]);
    top = max(top, __shfl_xor_sync(FULL, top, 1));
    top = max(top, __shfl_xor_sync(FULL, top, 2));
    const real now = max(my.most[h], top), shrink = ex2(my.most[h] - now);
    my.most[h] = now;
    my.total[h] *= shrink;
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
      for (int e = 2 * h; e < 2 * h + 2; e++) {
        s.c[j][e] = column_in_tile(j, e) < ends[h] ? ex2(s.c[j][e] - now) : real(0);
        my.total[h] += s.c[j][e];
      }
#pragma unroll
    for (int j = 0; j < HD / 8; j++) {
      sum.c[j][2 * h] *= shrink;
      sum.c[j][2 * h + 1] *= shrink;
    }
  }
}

/* What the warps of a tile have of a row becomes one: afterwards the first has its sum, and all its total. */
INLINE void merge(Running &my, Sum<HD> &sum, real *space) {
#pragma unroll
  for (int h = 0; h < 2; h++) my.total[h] = lanes_sum<4>(my.total[h]);
  if (SPLITS == 1) return;
  real *stats = space + own_tile() * SPLITS * 32;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    real *at = stats + (own_split() * 16 + lane_row() + 8 * h) * 2;
    if (lane_pair() == 0) at[0] = my.most[h];
    if (lane_pair() == 0) at[1] = my.total[h];
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    real most = LOWEST, total = 0;
    for (int w = 0; w < SPLITS; w++) most = max(most, stats[(w * 16 + lane_row() + 8 * h) * 2]);
    for (int w = 0; w < SPLITS; w++) {
      const real *at = stats + (w * 16 + lane_row() + 8 * h) * 2;
      total += at[1] * ex2(at[0] - most);
    }
    const real own = ex2(my.most[h] - most);
    my.total[h] = total;
#pragma unroll
    for (int j = 0; j < HD / 8; j++) {
      sum.c[j][2 * h] *= own;
      sum.c[j][2 * h + 1] *= own;
    }
  }
  __syncthreads();
  join(sum, space);
}

extern "C" __global__ void __launch_bounds__(256) block_tensor_norm(LAUNCHED) { first_norm(CHAIN_OF, x, g1); }

/* q, k and v by head, [b][heads + 2 kv_heads][n][HD], so that rows of one lie side by side. */
extern "C" __global__ void __launch_bounds__(256) block_tensor_project(LAUNCHED) {
  CHAIN;
  const int all_heads = heads + 2 * kv_heads;
  const real scale = score_scale();
  product_of(c.normal, wqkv, c.rows, c.all, d_model, [=](int row, int column, real sum) {
    const wide head = wide(row / n) * all_heads + column / HD;
    c.qkv[(head * n + row % n) * HD + column % HD] = column < c.own ? sum * scale : sum;
  });
}

extern "C" __global__ void __launch_bounds__(TEAM) block_tensor_attend(LAUNCHED) {
  CHAIN;
  const int b = blockIdx.y / heads, h = blockIdx.y % heads, g = heads + h / (heads / kv_heads), first = blockIdx.x * OWN;
  const real *own = c.qkv + wide(b) * (heads + 2 * kv_heads) * n * HD;
  const real *q = own + wide(h) * n * HD, *k = own + wide(g) * n * HD, *v = k + wide(kv_heads) * n * HD;
  real *space = lines + OWN * LD;
  bring<OWN>(lines, q, first, n);
  Running my = {{LOWEST, LOWEST}, {0, 0}};
  Sum<HD> sum;
  zero(sum);
  const int row = first + own_tile() * 16 + lane_row();
  walk<false>(k, v, space, 0, causal ? min(n, first + OWN) : n, n, [&](const real *keys, const real *values, int start) {
    Sum<STEP> s;
    products<STEP>(s, lines + own_tile() * 16 * LD, keys);
    const int ends[2] = {(causal ? min(n, row + 1) : n) - start, (causal ? min(n, row + 9) : n) - start};
    weigh(my, sum, s, ends);
    accumulate<STEP>(sum, s, values);
  });
  merge(my, sum, space);
  if (own_split()) return;
  real *mixed = c.mixed + wide(b) * n * c.own + h * HD;
  each(sum, [=](real &value, int r, int e) {
    const int at = first + own_tile() * 16 + r;
    if (at < n) mixed[at * c.own + e] = value / my.total[r / 8];
  });
}

extern "C" __global__ void __launch_bounds__(256) block_tensor_mix(LAUNCHED) { add_mixed(CHAIN_OF, x, wo, d_model); }

extern "C" __global__ void __launch_bounds__(256) block_tensor_norm_again(LAUNCHED) { second_norm(CHAIN_OF, g2); }

extern "C" __global__ void __launch_bounds__(256) block_tensor_gate(LAUNCHED) { gate_all(CHAIN_OF, wg, wu, d_ff, d_model); }

extern "C" __global__ void __launch_bounds__(256) block_tensor_down(LAUNCHED) { add_inner(CHAIN_OF, wd, y, d_ff, d_model); }
