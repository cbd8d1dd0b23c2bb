/* variant {
  "idea": "tiles in shared memory, scores computed in both passes: gq by tiles of queries, then gk and gv by tiles of keys",
  "language": "cuda", "symbol": "backward_gq", "dtypes": ["float32", "float64"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_ROWS": [16, 32, 64], "ADV_COLS": [64], "ADV_THREADS": [128, 256]},
  "defaults": {"ADV_ROWS": 32, "ADV_COLS": 64, "ADV_THREADS": 128},
  "valid": ["head_dim == 64 or head_dim == 128", "(ADV_THREADS == 256) == (ADV_ROWS * head_dim * max(4, item_bytes) >= 32768)",
            "(2 * (ADV_ROWS + 64) * (head_dim + 16 // item_bytes) + 2 * ADV_ROWS * (64 + 16 // item_bytes) + 128) * item_bytes <= 232448"],
  "reads": "batch * n * (head_dim * (7 * heads + 4 * kv_heads) + 3 * heads)",
  "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + heads)",
  "derived": {
    "pitch": "head_dim + 16 // real_bytes",
    "operands": "2 * (ADV_ROWS + ADV_COLS) * pitch",
    "scores": "ADV_ROWS * (ADV_COLS + 16 // real_bytes)"
  },
  "grid": ["(n + ADV_ROWS - 1) // ADV_ROWS", "batch * heads"], "block": "ADV_THREADS",
  "shared": "(operands + scores) * real_bytes",
  "then": [{"symbol": "backward_gk_gv", "grid": ["(n + ADV_ROWS - 1) // ADV_ROWS", "batch * kv_heads"], "block": "ADV_THREADS",
            "shared": "(operands + 2 * scores + 2 * ADV_COLS) * real_bytes"}],
  "workspace": "batch * heads * n * real_bytes",
  "mapping": "tiled: a block takes a tile of query rows, then of key rows; 16 lanes share a row of scores", "rank": 45
} */
#include "tiles.cuh"

#define PARAMETERS                                                                                                      \
  const real *q, const real *k, const real *v, const real *out, const real *lse, const real *gout, real *gq, real *gk, \
      real *gv, unsigned char *workspace, int batch, int heads, int kv_heads, int head_dim, int causal, int n,         \
      int pitch, int operands, int scores
#define THE_TASK {q, k, v, out, lse, gout, gq, gk, gv, (real *)workspace, heads / kv_heads, causal, n}

extern "C" __global__ void __launch_bounds__(ADV_THREADS) backward_gq(PARAMETERS) {
  extern __shared__ __align__(16) unsigned char space[];
  const Task task = THE_TASK;
  query_tile(task, (real *)space);
}

extern "C" __global__ void __launch_bounds__(ADV_THREADS) backward_gk_gv(PARAMETERS) {
  extern __shared__ __align__(16) unsigned char space[];
  const Task task = THE_TASK;
  key_tile(task, (real *)space);
}
