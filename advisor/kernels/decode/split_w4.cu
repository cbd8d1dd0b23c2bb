/* variant {
  "idea": "four warps (or eight) take one split of one query head side by side, then join in shared memory",
  "language": "cuda", "symbol": "decode_split_w4",
  "dtypes": ["float32", "float64", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_UNROLL": [2, 4, 8], "ADV_WARPS": [4, 8]},
  "run_knobs": {"blocks": [66, 132, 264, 528, 1056, 2112]},
  "defaults": {"ADV_UNROLL": 4, "ADV_WARPS": 4, "blocks": 528},
  "valid": ["head_dim == 64 or head_dim == 128"],
  "reads": "batch * heads * head_dim + 2 * batch * heads * n * head_dim",
  "writes": "batch * heads * head_dim", "atomics": "splits * batch * heads",
  "derived": {
    "rows": "ADV_WARPS * ADV_UNROLL * (32 // min(32, head_dim * item_bytes // 16))",
    "wanted": "max(1, min(blocks // (batch * heads), (n + rows - 1) // rows))",
    "chunk": "((n + wanted - 1) // wanted + rows - 1) // rows * rows",
    "splits": "(n + chunk - 1) // chunk",
    "first": "(4 * batch * heads + 15) // 16 * 16"
  },
  "grid": ["splits", "batch * heads"], "block": "32 * ADV_WARPS",
  "workspace": "first + splits * batch * heads * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "a block takes one split of one query head, its warps interleave the rows; lanes share a cache row, 16 bytes a lane",
  "rank": 10
} */
#include "rows.cuh"
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    decode_split_w4(const real *q, const store *k, const store *v, real *out, unsigned char *workspace, int batch, int heads,
       int kv_heads, int head_dim, int n, int blocks, int rows, int wanted, int chunk, int splits, int first) {
  split_rows<1, ADV_WARPS>(q, k, v, out, workspace, first, heads / kv_heads, n, chunk);
}
