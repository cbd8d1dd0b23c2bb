/* The product by tasks: a block of rows times a group of panels of packed weights.

   Tasks that share a group follow each other, so that weights come from memory once for all rows; each thread keeps its
   block of sums in its own scratch until they are whole. */
#ifndef ADVISOR_NORM_LINEAR_TASKS_H
#define ADVISOR_NORM_LINEAR_TASKS_H

#include <omp.h>

#include "packed.h"
#include "squares.h"

#include "call.h"

/* How rows and panels are cut; own: numbers of a thread's scratch. */
typedef struct {
    int64_t block, group, own;
} Cut;

/* dims: batch, d_model, d_out, n, block, group. */
INLINE Cut cut_of(const int64_t *dims) {
    int64_t block = least(dims[4], dims[0] * dims[3]), group = least(dims[5], panels_of(dims[2]));
    return (Cut){block, group, lines_of(block * group * PANEL)};
}

INLINE int64_t tasks_of(const Call *c, const Cut *cut) {
    return (c->rows + cut->block - 1) / cut->block * ((panels_of(c->o) + cut->group - 1) / cut->group);
}

/* Which rows and panels a task is. */
typedef struct {
    int64_t first, rows, panel, count;
} Task;

INLINE Task task_of(const Call *c, const Cut *cut, int64_t task) {
    int64_t blocks = (c->rows + cut->block - 1) / cut->block;
    int64_t first = task % blocks * cut->block, panel = task / blocks * cut->group;
    return (Task){first, least(cut->block, c->rows - first), panel, least(cut->group, panels_of(c->o) - panel)};
}

/* own [rows][count * PANEL] = rows of a [..][d] times the task's panels of `packed_w`. */
INLINE void product_of(const Call *c, const Task *t, const real *a, const real *packed_w, real *own) {
    product(a + t->first * c->d, c->d, t->rows, packed_w + t->panel * PANEL * c->d, PANEL * c->d, t->count, c->d, 0, own,
            t->count * PANEL);
}

/* Outputs of a task: where they lie in y, and how many there are in a row. */
INLINE real *outputs_of(const Call *c, const Task *t) { return c->y + t->first * c->o + t->panel * PANEL; }
INLINE int64_t columns_of(const Call *c, const Task *t) { return least(t->count * PANEL, c->o - t->panel * PANEL); }

#endif
