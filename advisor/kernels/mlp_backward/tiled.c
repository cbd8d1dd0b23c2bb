/* variant {
  "idea": "register tiles: ga, gb and h of all rows, then gx and the three gradients of weights, each a product with owners",
  "language": "c", "symbol": "mlp_backward_tiled", "dtypes": ["float32", "float64"], "requires": [],
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3, 4]},
  "run_knobs": {"block": [48, 96, 192], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 96, "group": 4},
  "valid": ["ADV_M * ADV_N * 32 == 12 * ADV_V"],
  "reads": "batch * n * (2 * d_model + 6 * d_ff) + 5 * d_model * d_ff",
  "writes": "batch * n * (d_model + 3 * d_ff) + 3 * d_model * d_ff",
  "mapping": "blocks of rows of each result times groups of panels, handed out one by one", "rank": 8
} */
#include <omp.h>

#include "product.h"

/* ga, gb, h [rows][row] lie in the workspace; a thread's own: three blocks of sums, and room for slices. */
typedef struct {
    int64_t block, group, row, own;
    real *ga, *gb, *h;
} Cut;

/* dims: batch, d_model, d_ff, n, block, group. */
static Cut cut_of(const int64_t *dims) {
    int64_t block = dims[4], group = least(dims[5], panels_of(most_of(dims[1], dims[2])));
    return (Cut){block, group, lines_of(dims[2]), lines_of(3 * block * group * PANEL) + room_numbers(block), 0, 0, 0};
}

int64_t mlp_backward_tiled_workspace(const int64_t *dims, int threads) {
    Cut cut = cut_of(dims);
    return (3 * dims[0] * dims[3] * cut.row + threads * cut.own) * REAL_BYTES;
}

/* A task of a result [rows][columns]: which block of its rows, which panels. */
typedef struct {
    int64_t first, rows, x, count;
} Task;

static int64_t tasks_of(const Cut *cut, int64_t rows, int64_t columns) {
    return (rows + cut->block - 1) / cut->block * ((panels_of(columns) + cut->group - 1) / cut->group);
}

static Task task_of(const Cut *cut, int64_t rows, int64_t columns, int64_t task) {
    int64_t blocks = (rows + cut->block - 1) / cut->block, first = task % blocks * cut->block;
    int64_t panel = task / blocks * cut->group;
    return (Task){first, least(cut->block, rows - first), panel * PANEL, least(cut->group, panels_of(columns) - panel)};
}

static void within_task(const Call *c, const Cut *cut, int64_t task, real *own, real *room) {
    Task t = task_of(cut, c->rows, c->f, task);
    int64_t row = t.count * PANEL, some = least(row, c->f - t.x), at = t.first * cut->row + t.x;
    within(c, t.first, t.rows, t.x, t.count, own, room);
    copy_rows(own, row, t.rows, some, cut->ga + at, cut->row);
    copy_rows(own + t.rows * row, row, t.rows, some, cut->gb + at, cut->row);
    copy_rows(own + 2 * t.rows * row, row, t.rows, some, cut->h + at, cut->row);
}

static void input_task(const Call *c, const Cut *cut, int64_t task, real *own, real *room) {
    Task t = task_of(cut, c->rows, c->d, task);
    int64_t row = t.count * PANEL, at = t.first * cut->row;
    product((Left){cut->ga + at, cut->row, 1}, t.rows, (Right){c->wg, c->d, 1, c->d}, t.x, t.count, c->f, 0, own, row, room);
    product((Left){cut->gb + at, cut->row, 1}, t.rows, (Right){c->wu, c->d, 1, c->d}, t.x, t.count, c->f, 1, own, row, room);
    copy_rows(own, row, t.rows, least(row, c->d - t.x), c->gx + t.first * c->d + t.x, c->d);
}

/* A gradient [rows][columns] = left^T [rows][all rows of x] right [all rows of x][columns]. */
static void weight_task(const Call *c, const Cut *cut, int64_t task, int64_t rows, Left left, Right right, real *to,
                        real *own, real *room) {
    Task t = task_of(cut, rows, right.columns, task);
    int64_t row = t.count * PANEL, columns = right.columns;
    left.a += t.first;
    product(left, t.rows, right, t.x, t.count, c->rows, 0, own, row, room);
    copy_rows(own, row, t.rows, least(row, columns - t.x), to + t.first * columns + t.x, columns);
}

/* dims: batch, d_model, d_ff, n, then block: rows at once, and group: panels at once. */
int mlp_backward_tiled(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    Cut cut = cut_of(dims);
    cut.ga = (real *)workspace, cut.gb = cut.ga + c.rows * cut.row, cut.h = cut.gb + c.rows * cut.row;
    Right x = {c.x, c.d, 1, c.d}, h = {cut.h, cut.row, 1, c.f};
    Left ga = {cut.ga, 1, cut.row}, gb = {cut.gb, 1, cut.row}, gy = {c.gy, 1, c.d};
#pragma omp parallel num_threads(threads)
    {
        real *own = cut.h + c.rows * cut.row + omp_get_thread_num() * cut.own;
        real *room = own + lines_of(3 * cut.block * cut.group * PANEL);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks_of(&cut, c.rows, c.f); task++) within_task(&c, &cut, task, own, room);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < tasks_of(&cut, c.rows, c.d); task++) input_task(&c, &cut, task, own, room);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < tasks_of(&cut, c.f, c.d); task++) {
            weight_task(&c, &cut, task, c.f, ga, x, c.gwg, own, room);
            weight_task(&c, &cut, task, c.f, gb, x, c.gwu, own, room);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks_of(&cut, c.d, c.f); task++)
            weight_task(&c, &cut, task, c.d, gy, h, c.gwd, own, room);
    }
    return 0;
}
