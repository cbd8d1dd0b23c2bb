/* variant {
  "idea": "one block serves all query heads of a group, so that each cache row is read once, on the CUDA cores",
  "language": "cuda", "symbol": "decode_batched",
  "dtypes": ["float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim", "ADV_SHARING": "heads // kv_heads"},
  "build_knobs": {"ADV_UNROLL": [2, 4], "ADV_WARPS": [4, 8]},
  "run_knobs": {"blocks": [66, 132, 264, 528, 1056, 2112]},
  "defaults": {"ADV_UNROLL": 2, "ADV_WARPS": 4, "blocks": 264},
  "valid": ["head_dim == 64 or head_dim == 128", "heads // kv_heads >= 2 and heads // kv_heads <= 8", "(heads // kv_heads) * ADV_WARPS * head_dim <= 5632"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim",
  "writes": "batch * heads * head_dim", "atomics": "splits * batch * kv_heads",
  "derived": {
    "rows": "ADV_WARPS * ADV_UNROLL * (32 // min(32, head_dim * item_bytes // 16))",
    "wanted": "max(1, min(blocks // (batch * kv_heads), (n + rows - 1) // rows))",
    "chunk": "((n + wanted - 1) // wanted + rows - 1) // rows * rows",
    "splits": "(n + chunk - 1) // chunk",
    "first": "(4 * batch * kv_heads + 15) // 16 * 16"
  },
  "grid": ["splits", "batch * kv_heads"], "block": "32 * ADV_WARPS",
  "workspace": "first + splits * batch * heads * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "a block takes one split of one head of the cache and all its query heads; lanes share a cache row, 16 bytes a lane",
  "rank": 30
} */
#include "rows.cuh"
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif
#ifndef ADV_SHARING
#define ADV_SHARING 1
#endif

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    decode_batched(const real *q, const store *k, const store *v, real *out, unsigned char *workspace, int batch, int heads,
       int kv_heads, int head_dim, int n, int blocks, int rows, int wanted, int chunk, int splits, int first) {
  split_rows<ADV_SHARING, ADV_WARPS>(q, k, v, out, workspace, first, ADV_SHARING, n, chunk);
}
