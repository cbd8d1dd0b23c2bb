/* The gated MLP in two phases with packed weights: h of all rows, then y of all rows.

   A task is a block of rows times a group of panels. Tasks that share a group follow each other, so that weights come
   from memory once for all rows; each thread keeps its block of sums in its own scratch until they are whole. */
#ifndef ADVISOR_MLP_PHASES_H
#define ADVISOR_MLP_PHASES_H

#include <omp.h>

#include "panels.h"

/* How rows and panels are cut. h [rows][h_row] and a scratch of `own` numbers a thread lie in the workspace. */
typedef struct {
    int64_t block, group, h_row, own;
} Cut;

/* dims: batch, d_model, d_ff, n, block, group. */
INLINE Cut cut_of(const int64_t *dims) {
    int64_t block = least(dims[4], dims[0] * dims[3]), group = least(dims[5], panels_of(dims[2] > dims[1] ? dims[2] : dims[1]));
    return (Cut){block, group, lines_of(dims[2]), lines_of(2 * block * group * PANEL)};
}

INLINE int64_t phases_numbers(const int64_t *dims, int threads) {
    Cut cut = cut_of(dims);
    return dims[0] * dims[3] * cut.h_row + threads * cut.own;
}

/* Rows `first` and on, panels `p` and on of h. */
static void gate_task(const Call *c, const Weights *w, const Cut *cut, int64_t first, int64_t p, real *own, real *h) {
    int64_t rows = least(cut->block, c->rows - first), count = least(cut->group, panels_of(c->f) - p), row = count * PANEL;
    const real *x = c->x + first * c->d;
    real *b = own + rows * row;
    product(x, c->d, rows, w->wg + p * PANEL * c->d, PANEL * c->d, count, c->d, 0, own, row);
    product(x, c->d, rows, w->wu + p * PANEL * c->d, PANEL * c->d, count, c->d, 0, b, row);
    gate_rows(own, b, row, rows, row);
    copy_rows(own, row, rows, least(row, c->f - p * PANEL), h + first * cut->h_row + p * PANEL, cut->h_row);
}

static void out_task(const Call *c, const Weights *w, const Cut *cut, int64_t first, int64_t p, real *own, const real *h) {
    int64_t rows = least(cut->block, c->rows - first), count = least(cut->group, panels_of(c->d) - p), row = count * PANEL;
    product(h + first * cut->h_row, cut->h_row, rows, w->wd + p * PANEL * c->f, PANEL * c->f, count, c->f, 0, own, row);
    copy_rows(own, row, rows, least(row, c->d - p * PANEL), c->y + first * c->d + p * PANEL, c->d);
}

/* Call it inside a parallel region. */
static void two_phases(const Call *c, const Weights *w, const Cut *cut, real *workspace) {
    real *h = workspace, *own = h + c->rows * cut->h_row + omp_get_thread_num() * cut->own;
    int64_t blocks = (c->rows + cut->block - 1) / cut->block;
    int64_t within = (panels_of(c->f) + cut->group - 1) / cut->group, out = (panels_of(c->d) + cut->group - 1) / cut->group;
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < blocks * within; task++)
        gate_task(c, w, cut, task % blocks * cut->block, task / blocks * cut->group, own, h);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < blocks * out; task++)
        out_task(c, w, cut, task % blocks * cut->block, task / blocks * cut->group, own, h);
}

#endif
