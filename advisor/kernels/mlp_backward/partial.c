/* variant {
  "idea": "a block of rows goes through all products while it lies in the cache; each thread sums the weights' gradients by itself, then these are merged",
  "language": "c", "symbol": "mlp_backward_partial", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [48, 96], "group": [4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 96, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V", "d_model * d_ff <= 1048576"],
  "reads": "2 * batch * n * d_model + 3 * d_model * d_ff", "writes": "batch * n * d_model + 3 * d_model * d_ff",
  "mapping": "blocks of rows, handed out one by one; then equal contiguous rows of each gradient", "rank": 10
} */
#include <omp.h>

#include "product.h"

/* A thread's own: gradients gwg, gwu [f][d_row] and gwd [d][f_row]; ga, gb, h [block][group]; gx [block][d_row]; slices. */
typedef struct {
    int64_t block, group, d_row, f_row, gradients, own;
} Cut;

/* dims: batch, d_model, d_ff, n, block, group. */
static Cut cut_of(const int64_t *dims) {
    int64_t d = dims[1], f = dims[2], block = dims[4], group = least(dims[5], panels_of(f));
    int64_t d_row = lines_of(panels_of(d) * PANEL), f_row = lines_of(panels_of(f) * PANEL);
    int64_t gradients = 2 * f * d_row + d * f_row;
    int64_t sums = lines_of(3 * block * group * PANEL) + block * d_row;
    return (Cut){block, group, d_row, f_row, gradients, gradients + sums + room_numbers(most_of(d, group * PANEL))};
}

int64_t mlp_backward_partial_workspace(const int64_t *dims, int threads) {
    return cut_of(dims).own * threads * REAL_BYTES;
}

/* Rows `first` and on: gx, and what they add to the thread's gradients. */
static void block_of(const Call *c, const Cut *cut, int64_t first, int64_t rows, real *own) {
    real *gwg = own, *gwu = gwg + c->f * cut->d_row, *gwd = gwu + c->f * cut->d_row;
    real *sums = own + cut->gradients, *gx = sums + lines_of(3 * cut->block * cut->group * PANEL);
    real *room = gx + cut->block * cut->d_row;
    Right x = {c->x + first * c->d, c->d, 1, c->d};
    Left gy = {c->gy + first * c->d, 1, c->d};
    for (int64_t f = 0; f < c->f; f += cut->group * PANEL) {
        int64_t count = least(cut->group, panels_of(c->f - f)), row = count * PANEL, some = least(row, c->f - f);
        real *ga = sums, *gb = ga + rows * row, *h = gb + rows * row;
        within(c, first, rows, f, count, sums, room);
        Right wg = {c->wg + f * c->d, c->d, 1, c->d}, wu = {c->wu + f * c->d, c->d, 1, c->d}, hidden = {h, row, 1, row};
        product((Left){ga, row, 1}, rows, wg, 0, panels_of(c->d), some, f > 0, gx, cut->d_row, room);
        product((Left){gb, row, 1}, rows, wu, 0, panels_of(c->d), some, 1, gx, cut->d_row, room);
        product((Left){ga, 1, row}, some, x, 0, panels_of(c->d), rows, 1, gwg + f * cut->d_row, cut->d_row, room);
        product((Left){gb, 1, row}, some, x, 0, panels_of(c->d), rows, 1, gwu + f * cut->d_row, cut->d_row, room);
        product(gy, c->d, hidden, 0, count, rows, 1, gwd + f, cut->f_row, room);
    }
    copy_rows(gx, cut->d_row, rows, c->d, c->gx + first * c->d, c->d);
}

/* to [columns] = the sum over threads of a row. */
static void merge_row(const real *from, int64_t step, int threads, int64_t columns, real *to) {
    memcpy(to, from, columns * sizeof(real));
    for (int t = 1; t < threads; t++)
        for (int64_t k = 0; k < columns; k++) to[k] += from[t * step + k];
}

/* dims: batch, d_model, d_ff, n, then block: rows at once, and group: panels within at once. */
int mlp_backward_partial(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    Cut cut = cut_of(dims);
    const real *all = (const real *)workspace;
#pragma omp parallel num_threads(threads)
    {
        real *own = (real *)workspace + omp_get_thread_num() * cut.own;
        memset(own, 0, cut.gradients * sizeof(real));
#pragma omp for schedule(dynamic, 1)
        for (int64_t first = 0; first < c.rows; first += cut.block)
            block_of(&c, &cut, first, least(cut.block, c.rows - first), own);
#pragma omp for schedule(static) nowait
        for (int64_t f = 0; f < c.f; f++) {
            merge_row(all + f * cut.d_row, cut.own, threads, c.d, c.gwg + f * c.d);
            merge_row(all + (c.f + f) * cut.d_row, cut.own, threads, c.d, c.gwu + f * c.d);
        }
#pragma omp for schedule(static)
        for (int64_t d = 0; d < c.d; d++)
            merge_row(all + 2 * c.f * cut.d_row + d * cut.f_row, cut.own, threads, c.f, c.gwd + d * c.f);
    }
    return 0;
}
