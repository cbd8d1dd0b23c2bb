/* A transformer block in five phases with packed weights: q, k and v; attention; m; h; y.

   A task is a block of rows times a group of panels, as in the MLP's phases: tasks that share a group follow each other,
   so that weights come from memory once for all rows. FUSED, a constant at every call: the norms go into the products
   that follow them. The gains are in the packed weights, a product is made of the rows as they are, and its sums take
   the row's scale at the end; otherwise normalised rows are written first, a phase of their own. */
#ifndef ADVISOR_BLOCK_PHASES_H
#define ADVISOR_BLOCK_PHASES_H

#include <omp.h>

#include "layer_norm.h"
#include "packed.h"

/* Attention of a strip of query rows, with all that it needs. */
#include "../forward/tiled.c"
#include "../mlp/gate.h"

#include "call.h"

/* Packed weights, one behind the other. */
typedef struct {
    real *wqkv, *wo, *wg, *wu, *wd;
} Packed;

INLINE int64_t all_packed(const Layer *l) {
    return packed(l->all, l->d) + packed(l->d, l->own) + 2 * packed(l->f, l->d) + packed(l->d, l->f);
}

INLINE Packed packed_in(const Layer *l, real *at) {
    real *wo = at + packed(l->all, l->d), *wg = wo + packed(l->d, l->own), *wu = wg + packed(l->f, l->d);
    return (Packed){at, wo, wg, wu, wu + packed(l->f, l->d)};
}

/* w [columns][depth] as panels, times gain [depth] (NULL: 1). */
static void pack_all(const real *w, int64_t columns, int64_t depth, const real *gain, real *to) {
#pragma omp for schedule(static) nowait
    for (int64_t p = 0; p < panels_of(columns); p++) {
        pack_panel(w, columns, depth, p, to);
        real *panel = to + p * PANEL * depth;
        for (int64_t k = 0; gain && k < depth; k++)
            for (int64_t x = 0; x < PANEL; x++) panel[k * PANEL + x] *= gain[k];
    }
}

static int prepare(void *const *buffers, const int64_t *dims, int threads, int fused) {
    Block c = block_of(buffers, dims);
    Packed to = packed_in(&c.l, (real *)buffers[9]);
#pragma omp parallel num_threads(threads)
    {
        pack_all(c.wqkv, c.l.all, c.l.d, fused ? c.g1 : 0, to.wqkv);
        pack_all(c.wo, c.l.d, c.l.own, 0, to.wo);
        pack_all(c.wg, c.l.f, c.l.d, fused ? c.g2 : 0, to.wg);
        pack_all(c.wu, c.l.f, c.l.d, fused ? c.g2 : 0, to.wu);
        pack_all(c.wd, c.l.d, c.l.f, 0, to.wd);
    }
    return 0;
}

/* What all rows leave in the workspace: normal [rows][d] (not if fused), out [b][h][n][e], heads, h [rows][h_row]; then a
   thread's scratch: sums of a block or attention's, scales of a block. */
typedef struct {
    int64_t block, group, normals, outs, all_heads, h_row, sums, own;
    real *normal, *out, *h, *scratch;
    Heads heads;
} Room;

/* Its sizes. dims: those of a layer, block, group. */
INLINE Room room_of(const Layer *l, const int64_t *dims, int fused) {
    Room r = {0};
    r.block = least(dims[8], l->rows), r.group = dims[9];
    r.normals = fused ? 0 : lines_of(l->rows * l->d), r.outs = lines_of(l->rows * l->own);
    r.all_heads = lines_of(heads_numbers(l)), r.h_row = lines_of(l->f);
    int64_t sums = lines_of(2 * r.block * r.group * PANEL);
    r.sums = sums > lines_of(SCRATCH) ? sums : lines_of(SCRATCH);
    r.own = r.sums + lines_of(r.block);
    return r;
}

INLINE int64_t workspace_bytes(const int64_t *dims, int threads, int fused) {
    Layer l = layer_of(dims);
    Room r = room_of(&l, dims, fused);
    return (r.normals + r.outs + r.all_heads + l.rows * r.h_row + threads * r.own) * REAL_BYTES;
}

INLINE void place_room(const Layer *l, Room *r, real *at) {
    r->normal = at, r->out = at + r->normals;
    r->heads = heads_in(l, r->out + r->outs);
    r->h = r->out + r->outs + r->all_heads, r->scratch = r->h + l->rows * r->h_row;
}

/* A task of a result [rows][columns]: which of its rows, which of its columns from a panel's first on. */
typedef struct {
    int64_t first, rows, panel, count, row, some;
} Task;

INLINE int64_t tasks_of(const Layer *l, const Room *r, int64_t columns) {
    return (l->rows + r->block - 1) / r->block * ((panels_of(columns) + r->group - 1) / r->group);
}

INLINE Task task_of(const Layer *l, const Room *r, int64_t columns, int64_t task) {
    int64_t blocks = (l->rows + r->block - 1) / r->block, first = task % blocks * r->block;
    int64_t panel = task / blocks * r->group, count = least(r->group, panels_of(columns) - panel);
    return (Task){first, least(r->block, l->rows - first), panel, count, count * PANEL,
                  least(count * PANEL, columns - panel * PANEL)};
}

/* to [rows] = the scales of rows x [rows][d] */
static void scales_of(const real *x, int64_t rows, int64_t d, real *to) {
    for (int64_t i = 0; i < rows; i++) to[i] = scale_of(squares_of(x + i * d, d), d);
}

static void scale_rows(real *sums, int64_t row, int64_t rows, const real *by) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < row; k += W) store(sums + i * row + k, load(sums + i * row + k) * by[i]);
}

/* to [rows][some] = plus + sums */
static void add_to(const Task *t, const real *sums, const real *plus, int64_t d, real *to) {
    for (int64_t i = 0; i < t->rows; i++) {
        int64_t at = (t->first + i) * d + t->panel * PANEL;
#pragma omp simd
        for (int64_t k = 0; k < t->some; k++) to[at + k] = plus[at + k] + sums[i * t->row + k];
    }
}

INLINE void project_task(const int FUSED, const Block *c, const Packed *w, const Room *r, int64_t task, real *own) {
    const Layer *l = &c->l;
    Task t = task_of(l, r, l->all, task);
    const real *rows = (FUSED ? c->x : r->normal) + t.first * l->d;
    product(rows, l->d, t.rows, w->wqkv + t.panel * PANEL * l->d, PANEL * l->d, t.count, l->d, 0, own, t.row);
    if (FUSED) {
        scales_of(rows, t.rows, l->d, own + r->sums);
        scale_rows(own, t.row, t.rows, own + r->sums);
    }
    for (int64_t i = 0; i < t.rows; i++)
        split_row(l, own + i * t.row, t.first + i, t.panel * PANEL, t.some, &r->heads);
}

static void attend(const Layer *l, const Room *r, int64_t task, real *own) {
    int64_t strips = (l->n + STRIP - 1) / STRIP, size = l->n * l->e, h = task / strips;
    int64_t shared = h / (l->heads / l->kv_heads) * size;
    Head head = {r->heads.q + h * size, r->heads.k + shared, r->heads.v + shared, r->out + h * size, l->n, (int)l->causal};
    strip(&head, (strips - 1 - task % strips) * STRIP, own);
}

/* m, which lies in y: a product a head, of rows of one sequence at a time, since a head's rows lie together. */
static void middle_task(const Block *c, const Packed *w, const Room *r, int64_t task, real *own) {
    const Layer *l = &c->l;
    Task t = task_of(l, r, l->d, task);
    for (int64_t i = t.first, some; i < t.first + t.rows; i += some) {
        some = least(l->n - i % l->n, t.first + t.rows - i);
        for (int64_t h = 0; h < l->heads; h++)
            product(r->out + ((i / l->n * l->heads + h) * l->n + i % l->n) * l->e, l->e, some,
                    w->wo + t.panel * PANEL * l->own + h * l->e * PANEL, PANEL * l->own, t.count, l->e, h > 0,
                    own + (i - t.first) * t.row, t.row);
    }
    add_to(&t, own, c->x, l->d, c->y);
}

INLINE void gate_task(const int FUSED, const Block *c, const Packed *w, const Room *r, int64_t task, real *own) {
    const Layer *l = &c->l;
    Task t = task_of(l, r, l->f, task);
    const real *rows = (FUSED ? c->y : r->normal) + t.first * l->d;
    int64_t at = t.panel * PANEL * l->d;
    real *b = own + t.rows * t.row;
    product(rows, l->d, t.rows, w->wg + at, PANEL * l->d, t.count, l->d, 0, own, t.row);
    product(rows, l->d, t.rows, w->wu + at, PANEL * l->d, t.count, l->d, 0, b, t.row);
    if (FUSED) {
        scales_of(rows, t.rows, l->d, own + r->sums);
        scale_rows(own, t.row, t.rows, own + r->sums);
        scale_rows(b, t.row, t.rows, own + r->sums);
    }
    for (int64_t k = 0; k < t.rows * t.row; k += W) store(own + k, gated(load(own + k), load(b + k)));
    copy_rows(own, t.row, t.rows, t.some, r->h + t.first * r->h_row + t.panel * PANEL, r->h_row);
}

static void out_task(const Block *c, const Packed *w, const Room *r, int64_t task, real *own) {
    const Layer *l = &c->l;
    Task t = task_of(l, r, l->d, task);
    product(r->h + t.first * r->h_row, r->h_row, t.rows, w->wd + t.panel * PANEL * l->f, PANEL * l->f, t.count, l->f, 0,
            own, t.row);
    add_to(&t, own, c->y, l->d, c->y);
}

/* Call it inside a parallel region. */
INLINE void phases(const int FUSED, const Block *c, const Packed *w, const Room *r) {
    const Layer *l = &c->l;
    real *own = r->scratch + omp_get_thread_num() * r->own;
    int64_t strips = l->batch * l->heads * ((l->n + STRIP - 1) / STRIP);
    if (!FUSED) norm_rows(l, c->x, c->g1, r->normal);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks_of(l, r, l->all); task++) project_task(FUSED, c, w, r, task, own);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < strips; task++) attend(l, r, task, own);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks_of(l, r, l->d); task++) middle_task(c, w, r, task, own);
    if (!FUSED) norm_rows(l, c->y, c->g2, r->normal);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks_of(l, r, l->f); task++) gate_task(FUSED, c, w, r, task, own);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks_of(l, r, l->d); task++) out_task(c, w, r, task, own);
}

#endif
