/* variant {
  "idea": "the same, but weights are packed in every call: for weights that change, and where nothing may be kept",
  "language": "c", "symbol": "mlp_repacked", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [24, 96, 192], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 96, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V"],
  "reads": "batch * n * (d_model + d_ff) + 6 * d_model * d_ff",
  "writes": "batch * n * (d_model + d_ff) + 3 * d_model * d_ff",
  "mapping": "panels, then blocks of rows times groups of panels, handed out one by one, in two phases", "rank": 40
} */
#include "phases.h"

int64_t mlp_repacked_workspace(const int64_t *dims, int threads) {
    return (lines_of(all_packed(dims[1], dims[2])) + phases_numbers(dims, threads)) * REAL_BYTES;
}

/* dims: batch, d_model, d_ff, n, then block: rows at once, and group: panels at once. */
int mlp_repacked(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    real *all = (real *)workspace;
    Weights w = weights_of(&c, all);
    Cut cut = cut_of(dims);
#pragma omp parallel num_threads(threads)
    {
        pack_weights(&c, all);
        two_phases(&c, &w, &cut, all + lines_of(all_packed(c.d, c.f)));
    }
    return 0;
}
