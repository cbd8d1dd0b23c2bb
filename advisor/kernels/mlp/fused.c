/* variant {
  "idea": "one phase: each thread takes a block of rows through gate and output, so that h never leaves its caches",
  "language": "c", "symbol": "mlp_fused", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [24, 48, 96], "group": [4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 48, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V"], "prepares": ["wg", "wu", "wd"],
  "reads": "batch * n * d_model + 3 * d_model * d_ff * ((batch * n + block - 1) // block)",
  "writes": "batch * n * d_model",
  "mapping": "blocks of rows, handed out one by one", "rank": 10
} */
#include <omp.h>

#include "panels.h"

/* dims: batch, d_model, d_ff, n, block, group. A thread's scratch: a and b [block][group], y [block][panels]. */
static int64_t own_numbers(const int64_t *dims) {
    int64_t block = least(dims[4], dims[0] * dims[3]);
    return lines_of(block * (2 * least(dims[5], panels_of(dims[2])) + panels_of(dims[1])) * PANEL);
}

int64_t mlp_fused_workspace(const int64_t *dims, int threads) { return own_numbers(dims) * threads * REAL_BYTES; }

int64_t mlp_fused_prepared(const int64_t *dims) { return all_packed(dims[1], dims[2]) * REAL_BYTES; }

int mlp_fused_prepare(void *const *buffers, const int64_t *dims, int threads) {
    Call c = call_of(buffers, dims);
#pragma omp parallel num_threads(threads)
    pack_weights(&c, (real *)buffers[5]);
    return 0;
}

/* y of some rows: panels of h by the group, each at once multiplied onto the sums of y. */
static void block_of(const Call *c, const Weights *w, int64_t first, int64_t rows, int64_t group, real *own) {
    int64_t panels = panels_of(c->d), y_row = panels * PANEL;
    real *y = own, *a = y + rows * y_row;
    const real *x = c->x + first * c->d;
    for (int64_t p = 0; p < panels_of(c->f); p += group) {
        int64_t count = least(group, panels_of(c->f) - p), row = count * PANEL, depth = least(row, c->f - p * PANEL);
        real *b = a + rows * row;
        product(x, c->d, rows, w->wg + p * PANEL * c->d, PANEL * c->d, count, c->d, 0, a, row);
        product(x, c->d, rows, w->wu + p * PANEL * c->d, PANEL * c->d, count, c->d, 0, b, row);
        gate_rows(a, b, row, rows, row);
        product(a, row, rows, w->wd + p * PANEL * PANEL, PANEL * c->f, panels, depth, p > 0, y, y_row);
    }
    copy_rows(y, y_row, rows, c->d, c->y + first * c->d, c->d);
}

/* dims: batch, d_model, d_ff, n, then block: rows at once, and group: panels of h at once. */
int mlp_fused(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    Weights w = weights_of(&c, (const real *)buffers[5]);
    int64_t block = least(dims[4], c.rows), group = least(dims[5], panels_of(c.f));
#pragma omp parallel num_threads(threads)
    {
        real *own = (real *)workspace + omp_get_thread_num() * own_numbers(dims);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t first = 0; first < c.rows; first += block)
            block_of(&c, &w, first, least(block, c.rows - first), group, own);
    }
    return 0;
}
