/* variant {
  "idea": "own kernels for every step: rows of the norm in registers, tiles in shared memory for products and attention",
  "language": "cuda", "symbol": "block_tiled_norm",
  "dtypes": ["float64", "float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim", "ADV_D": "d_model"},
  "build_knobs": {"ADV_TM": [2, 4], "ADV_LANES": [4, 16]}, "defaults": {"ADV_TM": 4, "ADV_LANES": 4},
  "valid": ["head_dim <= 256", "item_bytes > 2 or d_model * d_ff <= 1048576", "d_model <= 16384", "batch * heads <= 65535"],
  "reads": "batch * n * (4 * d_model + out * heads * head_dim + 2 * d_model + out * d_ff + (wide_all + wide_ff) * d_model) + down * d_model * (all + heads * head_dim + 3 * d_ff) + batch * heads * ((n + tall - 1) // tall) * n * 2 * head_dim",
  "writes": "batch * n * (4 * d_model + (2 * heads + 2 * kv_heads) * head_dim + d_ff)",
  "derived": {
    "side": "16 * ADV_TM", "all": "(heads + 2 * kv_heads) * head_dim", "down": "(batch * n + side - 1) // side",
    "wide_all": "(all + side - 1) // side", "wide_ff": "(d_ff + 63) // 64", "out": "(d_model + side - 1) // side",
    "tall": "128 // ADV_LANES * (1 + ((head_dim + ADV_LANES - 1) // ADV_LANES * real_bytes <= 128))",
    "norms": "(batch * n * (32 + 224 * (d_model > 1024)) + 255) // 256"
  },
  "grid": ["norms"], "block": "256",
  "then": [
    {"symbol": "block_tiled_project", "grid": ["wide_all", "down"], "block": "256"},
    {"symbol": "block_tiled_attend", "grid": ["(n + tall - 1) // tall", "batch * heads"], "block": "128"},
    {"symbol": "block_tiled_mix", "grid": ["out", "down"], "block": "256"},
    {"symbol": "block_tiled_norm_again", "grid": ["norms"], "block": "256"},
    {"symbol": "block_tiled_gate", "grid": ["wide_ff", "down"], "block": "256"},
    {"symbol": "block_tiled_down", "grid": ["out", "down"], "block": "256"}
  ],
  "workspace": "(batch * n * (2 * d_model + all + heads * head_dim + d_ff) + 16) * real_bytes",
  "mapping": "norms: a warp a row, a block where rows are wide; products: 16 x 16 threads a tile of outputs; attention: ADV_LANES lanes a query row, keys and values in shared memory",
  "rank": 40
} */
#ifndef ADV_TM
#define ADV_TM 4
#endif
#define TILE(COUNT) tile<ADV_TM, COUNT == 2 ? 4 : ADV_TM, COUNT>
#include "chain_steps.cuh"
#ifndef ADV_LANES
#define ADV_LANES 4
#endif

#define LAUNCHED ARGUMENTS, int side, int all_, int down, int wide_all, int wide_ff, int out, int tall, int norms

/* Lanes that share a query row; elements of a head that each has, LANES apart; query rows of a thread, of a block */
constexpr int LANES = ADV_LANES, OWN = (ADV_HD + LANES - 1) / LANES, EACH = OWN * sizeof(real) <= 128 ? 2 : 1;
constexpr int GROUPS = 128 / LANES, TALL = GROUPS * EACH;
/* Rows of k and v that lie in shared memory at a time, and those whose scores are made before weights change */
constexpr int FITTING = 16384 / (OWN * LANES * int(sizeof(real)));
constexpr int KEYS = FITTING < 4 ? 4 : FITTING > 32 ? 32 : FITTING / 4 * 4, CHUNK = 4;

/* Row `from` .. of k or v of one head into shared memory; zeros past the end, and past the elements of a head. */
INLINE void bring(real (&to)[KEYS][OWN * LANES], const real *rows, wide stride, int from, int n) {
  for (int i = threadIdx.x; i < KEYS * OWN * LANES; i += 128) {
    const int key = i / (OWN * LANES), e = i % (OWN * LANES);
    to[key][e] = from + key < n && e < ADV_HD ? rows[(from + key) * stride + e] : real(0);
  }
}

/* What one thread has of its query rows: its own elements of the queries and of the weighted sums. */
struct Queries {
  real q[EACH][OWN], sum[EACH][OWN], most[EACH], total[EACH];
};

/* CHUNK keys of the tile: their scores, the weights, and both sums. `ends`: one past the last key that a row attends to. */
INLINE void attend_to(Queries &my, const real (&k)[KEYS][OWN * LANES], const real (&v)[KEYS][OWN * LANES], int at, int from,
                      const int (&ends)[EACH]) {
  const int sub = threadIdx.x % LANES;
  real s[EACH][CHUNK] = {};
#pragma unroll
  for (int e = 0; e < OWN; e++)
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
      const real key = k[at + c][e * LANES + sub];
#pragma unroll
      for (int r = 0; r < EACH; r++) s[r][c] = fma(my.q[r][e], key, s[r][c]);
    }
#pragma unroll
  for (int r = 0; r < EACH; r++) {
    real now = my.most[r];
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
      s[r][c] = lanes_sum<LANES>(s[r][c]);
      if (from + at + c < ends[r]) now = max(now, s[r][c]);
    }
    const real shrink = grown(my.most[r], now);
    my.total[r] *= shrink;
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
      s[r][c] = from + at + c < ends[r] ? exp2(s[r][c] - now) : real(0);
      my.total[r] += s[r][c];
    }
#pragma unroll
    for (int e = 0; e < OWN; e++) my.sum[r][e] *= shrink;
  }
#pragma unroll
  for (int e = 0; e < OWN; e++)
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
      const real value = v[at + c][e * LANES + sub];
#pragma unroll
      for (int r = 0; r < EACH; r++) my.sum[r][e] = fma(s[r][c], value, my.sum[r][e]);
    }
}

extern "C" __global__ void __launch_bounds__(256) block_tiled_norm(LAUNCHED) { first_norm(CHAIN_OF, x, g1); }

extern "C" __global__ void __launch_bounds__(256) block_tiled_project(LAUNCHED) {
  CHAIN;
  real *qkv = c.qkv;
  const wide all = c.all;
  product_of(c.normal, wqkv, c.rows, all, d_model, [=](int row, int column, real sum) { qkv[row * all + column] = sum; });
}

extern "C" __global__ void __launch_bounds__(128) block_tiled_attend(LAUNCHED) {
  CHAIN;
  __shared__ real k[KEYS][OWN * LANES], v[KEYS][OWN * LANES];
  const int h = blockIdx.y % heads, g = h / (heads / kv_heads), sub = threadIdx.x % LANES;
  const real *first = c.qkv + wide(blockIdx.y / heads) * n * c.all, scale = score_scale();
  const real *keys = first + c.own + g * ADV_HD, *values = keys + kv_heads * ADV_HD;
  Queries my;
  int at[EACH], ends[EACH], end = 0;
#pragma unroll
  for (int r = 0; r < EACH; r++) {
    at[r] = blockIdx.x * TALL + r * GROUPS + threadIdx.x / LANES;
    ends[r] = causal ? min(n, at[r] + 1) : n;
    my.most[r] = LOWEST;
    my.total[r] = 0;
#pragma unroll
    for (int e = 0; e < OWN; e++) {
      const int place = e * LANES + sub;
      my.q[r][e] = at[r] < n && place < ADV_HD ? first[at[r] * c.all + h * ADV_HD + place] * scale : real(0);
      my.sum[r][e] = 0;
    }
  }
  end = causal ? min(n, int(blockIdx.x + 1) * TALL) : n;
  for (int from = 0; from < end; from += KEYS) {
    __syncthreads();
    bring(k, keys, c.all, from, n);
    bring(v, values, c.all, from, n);
    __syncthreads();
    for (int chunk = 0; chunk < KEYS; chunk += CHUNK) attend_to(my, k, v, chunk, from, ends);
  }
  real *mixed = c.mixed + (wide(blockIdx.y / heads) * n) * c.own + h * ADV_HD;
#pragma unroll
  for (int r = 0; r < EACH; r++)
#pragma unroll
    for (int e = 0; e < OWN; e++) {
      const int place = e * LANES + sub;
      if (at[r] < n && place < ADV_HD) mixed[at[r] * c.own + place] = my.sum[r][e] / my.total[r];
    }
}

extern "C" __global__ void __launch_bounds__(256) block_tiled_mix(LAUNCHED) { add_mixed(CHAIN_OF, x, wo, d_model); }

extern "C" __global__ void __launch_bounds__(256) block_tiled_norm_again(LAUNCHED) { second_norm(CHAIN_OF, g2); }

extern "C" __global__ void __launch_bounds__(256) block_tiled_gate(LAUNCHED) { gate_all(CHAIN_OF, wg, wu, d_ff, d_model); }

extern "C" __global__ void __launch_bounds__(256) block_tiled_down(LAUNCHED) { add_inner(CHAIN_OF, wd, y, d_ff, d_model); }
