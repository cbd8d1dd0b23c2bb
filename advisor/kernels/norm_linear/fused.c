/* variant {
  "idea": "the norm inside the product: g is folded into the packed weights, and r of a row scales its outputs, so that no row goes to memory in between",
  "language": "c", "symbol": "norm_linear_fused", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_U": "4"}, "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [24, 48, 96], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 48, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V"], "prepares": ["g", "w"],
  "reads": "batch * n * d_model + d_model * d_out", "writes": "batch * n * d_out",
  "mapping": "blocks of rows times groups of panels, handed out one by one", "rank": 10
} */
#include "tasks.h"

/* dims: batch, d_model, d_out, n, block, group. */
int64_t norm_linear_fused_workspace(const int64_t *dims, int threads) {
    return threads * cut_of(dims).own * REAL_BYTES;
}

int64_t norm_linear_fused_prepared(const int64_t *dims) { return packed(dims[2], dims[1]) * REAL_BYTES; }

/* Panels of w[o][d] g[d]. */
int norm_linear_fused_prepare(void *const *buffers, const int64_t *dims, int threads) {
    Call c = call_of(buffers, dims);
    real *to = (real *)buffers[4];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < panels_of(c.o); p++) {
        pack_panel(c.w, c.o, c.d, p, to);
        real *panel = to + p * PANEL * c.d; /* [d][PANEL] */
        for (int64_t d = 0; d < c.d; d++)
            for (int64_t x = 0; x < PANEL; x++) panel[d * PANEL + x] *= c.g[d];
    }
    return 0;
}

/* to [columns] = r times from. */
INLINE void scaled_row(const real *from, real scale, int64_t columns, real *to) {
    int64_t o = 0;
    vec factor = spread(scale);
    for (; o + W <= columns; o += W) store(to + o, load(from + o) * factor);
    for (; o < columns; o++) to[o] = from[o] * scale;
}

/* dims: batch, d_model, d_out, n, then block: rows at once, and group: panels at once. */
int norm_linear_fused(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    Cut cut = cut_of(dims);
    const real *packed_w = (const real *)buffers[4];
#pragma omp parallel num_threads(threads)
    {
        real *own = (real *)workspace + omp_get_thread_num() * cut.own;
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < tasks_of(&c, &cut); task++) {
            Task t = task_of(&c, &cut, task);
            int64_t row = t.count * PANEL, columns = columns_of(&c, &t);
            real *y = outputs_of(&c, &t);
            product_of(&c, &t, c.x, packed_w, own);
            for (int64_t i = 0; i < t.rows; i++) { /* x is in the cache now: r of a row costs one product of PANELs */
                real scale = scale_of(squares_of(c.x + (t.first + i) * c.d, c.d), c.d);
                scaled_row(own + i * row, scale, columns, y + i * c.o);
            }
        }
    }
    return 0;
}
