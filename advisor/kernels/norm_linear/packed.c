/* variant {
  "idea": "one after the other with register tiles: the norm of all rows to memory, then weights that were packed once",
  "language": "c", "symbol": "norm_linear_packed", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_U": "4"}, "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [24, 48, 96], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 48, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V"], "prepares": ["w"],
  "reads": "2 * batch * n * d_model + d_model + d_model * d_out", "writes": "batch * n * (d_model + d_out)",
  "mapping": "equal contiguous rows a thread, then blocks of rows times groups of panels, handed out one by one", "rank": 20
} */
#include "tasks.h"

/* dims: batch, d_model, d_out, n, block, group. Rows after the norm [rows][d], then a scratch a thread. */
int64_t norm_linear_packed_workspace(const int64_t *dims, int threads) {
    return (lines_of(dims[0] * dims[3] * dims[1]) + threads * cut_of(dims).own) * REAL_BYTES;
}

int64_t norm_linear_packed_prepared(const int64_t *dims) { return packed(dims[2], dims[1]) * REAL_BYTES; }

int norm_linear_packed_prepare(void *const *buffers, const int64_t *dims, int threads) {
    Call c = call_of(buffers, dims);
    real *to = (real *)buffers[4];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < panels_of(c.o); p++) pack_panel(c.w, c.o, c.d, p, to);
    return 0;
}

/* dims: batch, d_model, d_out, n, then block: rows at once, and group: panels at once. */
int norm_linear_packed(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    Cut cut = cut_of(dims);
    const real *packed_w = (const real *)buffers[4];
    real *normed = (real *)workspace, *all = normed + lines_of(c.rows * c.d);
#pragma omp parallel num_threads(threads)
    {
        real *own = all + omp_get_thread_num() * cut.own;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++) {
            const real *x = c.x + i * c.d;
            scaled(0, x, c.g, scale_of(squares_of(x, c.d), c.d), c.d, normed + i * c.d);
        }
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < tasks_of(&c, &cut); task++) {
            Task t = task_of(&c, &cut, task);
            product_of(&c, &t, normed, packed_w, own);
            copy_rows(own, t.count * PANEL, t.rows, columns_of(&c, &t), outputs_of(&c, &t), c.o);
        }
    }
    return 0;
}
