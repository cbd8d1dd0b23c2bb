/* variant {
  "idea": "below the gate each of a block's four warps takes a split of its own, from it on all four take one together",
  "language": "cuda", "symbol": "decode_gated",
  "dtypes": ["float32", "float64", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_UNROLL": [2, 4], "ADV_GATE": [1024, 1920, 4096, 16384]},
  "run_knobs": {"blocks": [66, 132, 264, 528, 1056, 2112]},
  "defaults": {"ADV_UNROLL": 4, "ADV_GATE": 1920, "blocks": 528},
  "valid": ["head_dim == 64 or head_dim == 128"],
  "reads": "batch * heads * head_dim + 2 * batch * heads * n * head_dim",
  "writes": "batch * heads * head_dim", "atomics": "splits * batch * heads",
  "derived": {
    "rows": "4 * ADV_UNROLL * (32 // min(32, head_dim * item_bytes // 16))",
    "wanted": "max(1, min(blocks // (batch * heads), (n + rows - 1) // rows))",
    "chunk": "((n + wanted - 1) // wanted + rows - 1) // rows * rows",
    "splits": "(n + chunk - 1) // chunk",
    "first": "(4 * batch * heads + 15) // 16 * 16"
  },
  "grid": ["splits", "batch * heads"], "block": "128",
  "workspace": "first + splits * batch * heads * (head_dim + 2) * real_bytes * 4", "zeros": "first",
  "mapping": "a block has four warps and one query head; a warp a split below the gate, a block a split from it on; lanes share a cache row, 16 bytes a lane",
  "rank": 40
} */
#include "rows.cuh"
#ifndef ADV_GATE
#define ADV_GATE 1920
#endif

/* The same grid and block on both sides of the gate: below it `splits` blocks hold 4 x splits partial results. */
extern "C" __global__ void __launch_bounds__(128)
    decode_gated(const real *q, const store *k, const store *v, real *out, unsigned char *workspace, int batch, int heads,
       int kv_heads, int head_dim, int n, int blocks, int rows, int wanted, int chunk, int splits, int first) {
  if (n >= ADV_GATE) {
    split_rows<1, 4>(q, k, v, out, workspace, first, heads / kv_heads, n, chunk);
    return;
  }
  const int group = blockIdx.y, own = blockIdx.x * 4 + threadIdx.x / 32, parts = 4 * splits;
  const wide cache = wide(group) / (heads / kv_heads) * n * ADV_HD;
  const Partial<1> part(workspace, first, group, parts);
  const int share = (n + parts - 1) / parts, start = min(n, own * share), end = min(n, start + share);
  Walk<1> my;
  begin<1>(my, q + wide(group) * ADV_HD);
  walk<1>(my, k + cache, v + cache, start, end, ADV_UNROLL * AT_ONCE);
  join_rows<1>(my);
  emit<1>(my, part, own);
  finish<1, 4>(part, (unsigned *)workspace + group, parts, out + wide(group) * ADV_HD);
}
