/* variant {
  "idea": "register tiles on weights that were packed once, h of all rows and then y of all rows: threads share rows and outputs alike",
  "language": "c", "symbol": "mlp_packed", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [24, 96, 192], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 96, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V"], "prepares": ["wg", "wu", "wd"],
  "reads": "batch * n * (d_model + d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + d_ff)",
  "mapping": "blocks of rows times groups of panels, handed out one by one, in two phases", "rank": 8
} */
#include "phases.h"

int64_t mlp_packed_workspace(const int64_t *dims, int threads) { return phases_numbers(dims, threads) * REAL_BYTES; }

int64_t mlp_packed_prepared(const int64_t *dims) { return all_packed(dims[1], dims[2]) * REAL_BYTES; }

int mlp_packed_prepare(void *const *buffers, const int64_t *dims, int threads) {
    Call c = call_of(buffers, dims);
#pragma omp parallel num_threads(threads)
    pack_weights(&c, (real *)buffers[5]);
    return 0;
}

/* dims: batch, d_model, d_ff, n, then block: rows at once, and group: panels at once. */
int mlp_packed(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    Weights w = weights_of(&c, (const real *)buffers[5]);
    Cut cut = cut_of(dims);
#pragma omp parallel num_threads(threads)
    two_phases(&c, &w, &cut, (real *)workspace);
    return 0;
}
