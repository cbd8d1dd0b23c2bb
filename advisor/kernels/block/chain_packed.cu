/* variant {
  "idea": "every step by a simple kernel of its own, all of it in memory between them, as the paper has it",
  "language": "cuda", "symbol": "block_packed_norm",
  "dtypes": ["float64", "float32"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "valid": ["head_dim <= 256", "batch * n * d_model * d_ff <= 17179869184"],
  "reads": "batch * n * (4 * d_model + d_model * ((heads + 2 * kv_heads) * head_dim + heads * head_dim + 3 * d_ff) * 2 + 2 * d_model) + batch * heads * n * n * 2 * head_dim",
  "writes": "batch * n * (4 * d_model + (2 * heads + 2 * kv_heads) * head_dim + d_ff)",
  "derived": {
    "all": "(heads + 2 * kv_heads) * head_dim", "rows": "batch * n", "packed": "(rows + 127) // 128",
    "heads_packed": "(rows * heads + 127) // 128"
  },
  "grid": ["packed"], "block": "128",
  "then": [
    {"symbol": "block_packed_project", "grid": ["(rows * all + 127) // 128"], "block": "128"},
    {"symbol": "block_packed_attend", "grid": ["heads_packed"], "block": "128"},
    {"symbol": "block_packed_mix", "grid": ["(rows * d_model + 127) // 128"], "block": "128"},
    {"symbol": "block_packed_norm_again", "grid": ["packed"], "block": "128"},
    {"symbol": "block_packed_gate", "grid": ["(rows * d_ff + 127) // 128"], "block": "128"},
    {"symbol": "block_packed_down", "grid": ["(rows * d_model + 127) // 128"], "block": "128"}
  ],
  "workspace": "(rows * (2 * d_model + all + heads * head_dim + d_ff) + 16) * real_bytes",
  "mapping": "packed: norms and attention by a thread a row, 128 rows a block; of a product a thread takes an output element",
  "rank": 60
} */
#include "chain.cuh"

#define LAUNCHED ARGUMENTS, int all_, int rows_, int packed, int heads_packed
#define OWN_INDEX wide(blockIdx.x) * 128 + threadIdx.x

/* RMSNorm of one row by one thread. */
template <typename In> INLINE void norm(const In *x, const store *g, real *y, int d_model) {
  real squares = 0;
  for (int d = 0; d < d_model; d++) squares += get(x[d]) * get(x[d]);
  const real r = real(1) / sqrt(squares / real(d_model) + EPS);
  for (int d = 0; d < d_model; d++) y[d] = get(x[d]) * r * get(g[d]);
}

extern "C" __global__ void __launch_bounds__(128) block_packed_norm(LAUNCHED) {
  CHAIN;
  const wide row = OWN_INDEX;
  if (row < c.rows) norm(x + row * d_model, g1, c.normal + row * d_model, d_model);
}

extern "C" __global__ void __launch_bounds__(128) block_packed_project(LAUNCHED) {
  CHAIN;
  const wide i = OWN_INDEX, row = i / c.all;
  if (row < c.rows) c.qkv[i] = dot(c.normal + row * d_model, wqkv + i % c.all * d_model, d_model);
}

/* One query row of one head by one thread. */
extern "C" __global__ void __launch_bounds__(128) block_packed_attend(LAUNCHED) {
  CHAIN;
  const wide i = OWN_INDEX, row = i / heads;
  if (row >= c.rows) return;
  const int h = int(i % heads), g = h / (heads / kv_heads), at = int(row % n), end = causal ? at + 1 : n;
  const real *first = c.qkv + (row - at) * c.all, scale = score_scale();
  real q[ADV_HD], sum[ADV_HD], most = LOWEST, total = 0;
  for (int e = 0; e < ADV_HD; e++) {
    q[e] = c.qkv[row * c.all + h * ADV_HD + e] * scale;
    sum[e] = 0;
  }
  for (int j = 0; j < end; j++) {
    const real *k = first + j * c.all + c.own + g * ADV_HD, *v = k + kv_heads * ADV_HD;
    real s = 0;
    for (int e = 0; e < ADV_HD; e++) s = fma(q[e], k[e], s);
    const real shrink = grown(most, max(most, s)), weight = exp2(s - most);
    total = total * shrink + weight;
    for (int e = 0; e < ADV_HD; e++) sum[e] = fma(weight, v[e], sum[e] * shrink);
  }
  for (int e = 0; e < ADV_HD; e++) c.mixed[row * c.own + h * ADV_HD + e] = sum[e] / total;
}

extern "C" __global__ void __launch_bounds__(128) block_packed_mix(LAUNCHED) {
  CHAIN;
  const wide i = OWN_INDEX, row = i / d_model;
  if (row < c.rows) c.middle[i] = get(x[i]) + dot(c.mixed + row * c.own, wo + i % d_model * c.own, int(c.own));
}

extern "C" __global__ void __launch_bounds__(128) block_packed_norm_again(LAUNCHED) {
  CHAIN;
  const wide row = OWN_INDEX;
  if (row < c.rows) norm(c.middle + row * d_model, g2, c.normal + row * d_model, d_model);
}

extern "C" __global__ void __launch_bounds__(128) block_packed_gate(LAUNCHED) {
  CHAIN;
  const wide i = OWN_INDEX, row = i / d_ff, at = i % d_ff * d_model;
  const real *own = c.normal + row * d_model;
  if (row < c.rows) c.h[i] = silu(dot(own, wg + at, d_model)) * dot(own, wu + at, d_model);
}

extern "C" __global__ void __launch_bounds__(128) block_packed_down(LAUNCHED) {
  CHAIN;
  const wide i = OWN_INDEX, row = i / d_model;
  if (row < c.rows) y[i] = put(c.middle[i] + dot(c.h + row * d_ff, wd + i % d_model * d_ff, d_ff));
}
