/* variant {
  "idea": "the same with each norm in the products that follow it: gains are packed into the weights, the sums of a row take its scale, and normalised rows never exist",
  "language": "c", "symbol": "block_fused_norm", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4], "ADV_U": [4]},
  "run_knobs": {"block": [24, 96, 192], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "ADV_U": 4, "block": 96, "group": 4},
  "valid": ["head_dim <= 256", "ADV_M * ADV_N * 32 == 12 * ADV_V"],
  "prepares": ["g1", "wqkv", "wo", "g2", "wg", "wu", "wd"],
  "reads": "batch * n * (4 * d_model + 2 * (heads + kv_heads) * head_dim + d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "writes": "batch * n * (2 * d_model + 2 * (heads + kv_heads) * head_dim + d_ff)",
  "mapping": "blocks of rows times groups of panels, and strips of query rows, handed out one by one in five phases", "rank": 12
} */
#include "phases.h"

int64_t block_fused_norm_workspace(const int64_t *dims, int threads) { return workspace_bytes(dims, threads, 1); }

int64_t block_fused_norm_prepared(const int64_t *dims) {
    Layer l = layer_of(dims);
    return all_packed(&l) * REAL_BYTES;
}

int block_fused_norm_prepare(void *const *buffers, const int64_t *dims, int threads) {
    return prepare(buffers, dims, threads, 1);
}

/* dims: those of a layer, then block: rows at once, and group: panels at once. */
int block_fused_norm(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D) return 1;
    Block c = block_of(buffers, dims);
    Packed w = packed_in(&c.l, (real *)buffers[9]);
    Room r = room_of(&c.l, dims, 1);
    place_room(&c.l, &r, (real *)workspace);
#pragma omp parallel num_threads(threads)
    phases(1, &c, &w, &r);
    return 0;
}
