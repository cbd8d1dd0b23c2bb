/* variant {
  "idea": "one warp takes one split of one query head; the last one to end merges the splits",
  "language": "cuda", "symbol": "decode_split_w1",
  "dtypes": ["float32", "float64", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_UNROLL": [2, 4, 8]},
  "run_knobs": {"blocks": [528, 1056, 2112, 4224, 8448]},
  "defaults": {"ADV_UNROLL": 4, "blocks": 2112},
  "valid": ["head_dim == 64 or head_dim == 128"],
  "reads": "batch * heads * head_dim + 2 * batch * heads * n * head_dim",
  "writes": "batch * heads * head_dim", "atomics": "splits * batch * heads",
  "derived": {
    "rows": "ADV_UNROLL * (32 // min(32, head_dim * item_bytes // 16))",
    "wanted": "max(1, min(blocks // (batch * heads), (n + rows - 1) // rows))",
    "chunk": "((n + wanted - 1) // wanted + rows - 1) // rows * rows",
    "splits": "(n + chunk - 1) // chunk",
    "first": "(4 * batch * heads + 15) // 16 * 16"
  },
  "grid": ["splits", "batch * heads"], "block": "32",
  "workspace": "first + splits * batch * heads * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "a block is one warp and takes one split of one query head; lanes share a cache row, 16 bytes a lane",
  "rank": 20
} */
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(32)
    decode_split_w1(const real *q, const store *k, const store *v, real *out, unsigned char *workspace, int batch, int heads,
       int kv_heads, int head_dim, int n, int blocks, int rows, int wanted, int chunk, int splits, int first) {
  split_rows<1, 1>(q, k, v, out, workspace, first, heads / kv_heads, n, chunk);
}
