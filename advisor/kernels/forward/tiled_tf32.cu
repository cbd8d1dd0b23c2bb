/* variant {
  "idea": "tiles in shared memory, float32 in three products of its parts on tensor cores, a running softmax",
  "language": "cuda", "symbol": "forward_tiled_tf32", "dtypes": ["float32"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_BM": [16, 32, 64, 128], "ADV_BN": [32, 64]}, "run_knobs": {"splits": [1, 2, 4, 8]},
  "defaults": {"ADV_BM": 64, "ADV_BN": 64, "splits": 4},
  "valid": ["head_dim == 64 or head_dim == 128", "ADV_BM < max(32, 2 * n)", "ADV_BN < max(64, 2 * n)",
            "splits == 1 or splits * ADV_BN < n + ADV_BN",
            "splits == 1 or splits * ((n + ADV_BM - 1) // ADV_BM) * batch * heads <= 1056",
            "ADV_BM >= 64 or ((n + 63) // 64) * batch * heads <= 132"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "atomics": "(splits > 1) * splits * tiles",
  "derived": {
    "tiles": "(n + ADV_BM - 1) // ADV_BM * batch * heads",
    "first": "(splits > 1) * ((4 * tiles + 15) // 16 * 16)"
  },
  "grid": ["(n + ADV_BM - 1) // ADV_BM", "batch * heads", "splits"], "block": "2 * ADV_BM",
  "shared": "item_bytes * ((ADV_BM + ADV_BN) * (head_dim + 8) + ADV_BN * (head_dim + 16 // item_bytes))",
  "workspace": "first + (splits > 1) * tiles * splits * ADV_BM * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "tiled: a warp takes 16 query rows of a block's tile, and a split of the keys; weights stay in registers",
  "rank": 10
} */
#include "eight_deep.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    forward_tiled_tf32(FORWARD_ARGUMENTS, int splits, int tiles, int first) {
  extern __shared__ __align__(16) store space[];
  attend(space, q, k, v, out, workspace, batch, heads, kv_heads, head_dim, causal, n, splits, tiles, first);
}
