/* The steps of the gradients of a transformer block, by register tiles. Call them inside a parallel region. */
#ifndef ADVISOR_BLOCK_BACKWARD_STEPS_H
#define ADVISOR_BLOCK_BACKWARD_STEPS_H

#include <omp.h>

#define least strips_least /* strips.h has a `least` of its own */
#include "owners.h"
#undef least

#define Head ForwardHead /* and forward's tiled variant a Head; its strip() is attention of a strip of query rows */
#include "../forward/tiled.c"
#undef Head

#include "layer_norm.h"
#include "sliced.h"

#include "../mlp_backward/gate.h"

#include "call.h"

#define OWNER_BLOCK (8 * ADV_M) /* rows at once of attention's gradients */

/* How results are cut, where parts and row statistics (lse in base 2, delta, [b*h][padded(n)] each) lie, and a thread's
   scratch: sums of three blocks and room for slices, or attention's; sums of a gain's gradient. */
typedef struct {
    int64_t block, group, statistics, gain, own;
    Plan plan;
    real *r[PARTS], *lse, *delta, *scratch;
    Heads heads, gradients;
} Cut;

INLINE int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Its sizes. dims: those of a layer, block, group. */
INLINE Cut cut_of(const Layer *l, const int64_t *dims) {
    Cut cut = {0};
    cut.block = dims[8], cut.group = dims[9], cut.plan = plan_of(l);
    cut.statistics = l->batch * l->heads * padded(l->n);
    int64_t products = lines_of(3 * cut.block * cut.group * PANEL) + room_numbers(cut.block);
    cut.gain = lines_of(larger_of(products, larger_of(SCRATCH, owner_bytes(OWNER_BLOCK) / REAL_BYTES)));
    cut.own = cut.gain + lines_of(l->d);
    return cut;
}

INLINE int64_t cut_numbers(const Cut *cut, int threads) {
    return cut->plan.all + 2 * lines_of(cut->statistics) + threads * cut->own;
}

INLINE void place_cut(const Layer *l, Cut *cut, real *at) {
    place_parts(&cut->plan, at, cut->r);
    cut->lse = at + cut->plan.all, cut->delta = cut->lse + lines_of(cut->statistics);
    cut->scratch = cut->delta + lines_of(cut->statistics);
    cut->heads = heads_in(l, cut->r[HEADS]), cut->gradients = heads_in(l, cut->r[G_HEADS]);
}

/* to [rows][right.columns] = left [rows][depth] times right, plus left_2 times right_2 where it has one, plus `plus` of
   to's shape (NULL: 0). */
typedef struct {
    Left left;
    Right right;
    int64_t rows, depth;
    real *to;
    const real *plus;
    Left left_2;
    Right right_2;
} Sum;

/* A task of a result: which of its rows, which of its columns from a panel's first on. */
typedef struct {
    int64_t first, rows, x, count, row, some;
} Task;

INLINE int64_t tasks_of(const Cut *cut, int64_t rows, int64_t columns) {
    return (rows + cut->block - 1) / cut->block * ((panels_of(columns) + cut->group - 1) / cut->group);
}

INLINE Task task_of(const Cut *cut, int64_t rows, int64_t columns, int64_t task) {
    int64_t blocks = (rows + cut->block - 1) / cut->block, first = task % blocks * cut->block;
    int64_t panel = task / blocks * cut->group, count = least(cut->group, panels_of(columns) - panel);
    return (Task){first, least(cut->block, rows - first), panel * PANEL, count, count * PANEL,
                  least(count * PANEL, columns - panel * PANEL)};
}

INLINE real *slices_of(const Cut *cut, real *own) { return own + lines_of(3 * cut->block * cut->group * PANEL); }

static Left from_row(Left left, int64_t first) {
    left.a += first * left.row;
    return left;
}

static void one_sum(const Cut *cut, const Sum *s, int64_t task, real *own) {
    Task t = task_of(cut, s->rows, s->right.columns, task);
    real *slices = slices_of(cut, own);
    product(from_row(s->left, t.first), t.rows, s->right, t.x, t.count, s->depth, 0, own, t.row, slices);
    if (s->left_2.a)
        product(from_row(s->left_2, t.first), t.rows, s->right_2, t.x, t.count, s->depth, 1, own, t.row, slices);
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t at = (t.first + i) * s->right.columns + t.x;
        if (s->plus)
            for (int64_t k = 0; k < t.some; k++) s->to[at + k] = s->plus[at + k] + own[i * t.row + k];
        else
            memcpy(s->to + at, own + i * t.row, t.some * sizeof(real));
    }
}

static void make(const Cut *cut, Sum s, real *own) {
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks_of(cut, s.rows, s.right.columns); task++) one_sum(cut, &s, task, own);
}

/* The gradient of a weight: a [rows][outputs] transposed times b [rows][columns]. */
static void make_weight(const Cut *cut, const Layer *l, const real *a, int64_t outputs, const real *b, int64_t columns,
                        real *to, real *own) {
    make(cut, (Sum){.left = {a, 1, outputs}, .right = {b, columns, 1, columns}, .rows = outputs, .depth = l->rows, .to = to},
         own);
}

static void split_rows(const Layer *l, const real *from, int64_t columns, const Heads *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) split_row(l, from + i * columns, i, 0, columns, to);
}

static void join_rows(const Layer *l, const Heads *from, int64_t columns, real *to) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) join_row(l, from, i, columns, to + i * columns);
}

/* out of a strip of query rows, and lse from the maximum and total that lie behind its scores; zero in the padding. */
static void attend(const Layer *l, const Cut *cut, real *own) {
    int64_t strips = strips_of(l->n), size = l->n * l->e;
    const real *most = own + 2 * ADV_D * STRIP + BLOCK * STRIP, *total = most + STRIP;
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < l->batch * l->heads * strips; task++) {
        int64_t h = task / strips, first = (strips - 1 - task % strips) * STRIP, at = h / (l->heads / l->kv_heads) * size;
        ForwardHead head = {cut->heads.q + h * size, cut->heads.k + at, cut->heads.v + at, cut->r[OUT] + h * size,
                            l->n, (int)l->causal};
        strip(&head, first, own);
        real *lse = cut->lse + h * padded(l->n) + first;
        for (int64_t x = 0; x < STRIP; x++) lse[x] = first + x < l->n ? most[x] + (real)log2((double)total[x]) : 0;
    }
}

/* delta = gout . out / sqrt(e), zero in the padding */
static void deltas(const Layer *l, const Cut *cut) {
    int64_t wide = padded(l->n);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < cut->statistics; row++) {
        int64_t i = row % wide, from = (row / wide * l->n + i) * l->e;
        real total = 0;
        if (i < l->n) {
            const real *gout = cut->r[G_OUT] + from, *out = cut->r[OUT] + from;
#pragma omp simd reduction(+ : total)
            for (int64_t e = 0; e < l->e; e++) total += gout[e] * out[e];
        }
        cut->delta[row] = total * score_scale();
    }
}

/* Query head h, of all sequences. */
INLINE Head head_of(const Layer *l, const Cut *cut, int64_t h) {
    int64_t size = l->n * l->e, shared = h / (l->heads / l->kv_heads) * size, row = h * padded(l->n);
    return (Head){cut->heads.q + h * size, cut->heads.k + shared, cut->heads.v + shared, cut->r[G_OUT] + h * size,
                  cut->lse + row, cut->delta + row, l->n, OWNER_BLOCK, (int)l->causal};
}

/* gq of a strip of query rows, or gk and gv of a strip of rows of k and v. */
static void attention_strip(const Layer *l, const Cut *cut, int64_t task, real *own) {
    Owner o = owner_in(own, OWNER_BLOCK);
    int64_t strips = strips_of(l->n), units = l->batch * l->kv_heads, sharing = l->heads / l->kv_heads, size = l->n * l->e;
    if (task >= units * strips) {
        int64_t h = task / strips - units;
        Head head = head_of(l, cut, h);
        own_queries(&head, (strips - 1 - task % strips) * WIDE, &o, cut->gradients.q + h * size);
        return;
    }
    int64_t g = task / strips, first = task % strips * WIDE;
    Head head = head_of(l, cut, g * sharing);
    pack_keys(&head, first, &o);
    for (int64_t h = g * sharing; h < (g + 1) * sharing; h++) {
        head = head_of(l, cut, h);
        add_queries(&head, first, &o, 0);
    }
    unpack_keys(&head, first, &o, cut->gradients.k + g * size, cut->gradients.v + g * size);
}

static void attention_back(const Layer *l, const Cut *cut, real *own) {
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < l->batch * (l->heads + l->kv_heads) * strips_of(l->n); task++)
        attention_strip(l, cut, task, own);
}

/* a, b and gh of a task, then ga, gb and h. */
static void within_task(const Block *c, const Cut *cut, int64_t task, real *own) {
    const Layer *l = &c->l;
    Task t = task_of(cut, l->rows, l->f, task);
    int64_t numbers = t.rows * t.row, at = t.first * l->f + t.x;
    real *slices = slices_of(cut, own);
    Left x = {cut->r[NORMAL_2] + t.first * l->d, l->d, 1}, gy = {c->gy + t.first * l->d, l->d, 1};
    product(x, t.rows, (Right){c->wg, 1, l->d, l->f}, t.x, t.count, l->d, 0, own, t.row, slices);
    product(x, t.rows, (Right){c->wu, 1, l->d, l->f}, t.x, t.count, l->d, 0, own + numbers, t.row, slices);
    product(gy, t.rows, (Right){c->wd, l->f, 1, l->f}, t.x, t.count, l->d, 0, own + 2 * numbers, t.row, slices);
    gate_rows(own, own + numbers, own + 2 * numbers, numbers);
    for (int part = 0; part < 3; part++)
        copy_rows(own + part * numbers, t.row, t.rows, t.some, cut->r[GA + part] + at, l->f);
}

/* gx of a row = plus + the gradient of RMSNorm, and its share of gg added to `sums`. */
static void norm_back_row(const real *restrict x, const real *restrict g, const real *restrict gy,
                          const real *restrict plus, int64_t count, real *restrict gx, real *restrict sums) {
    real squares = 0, back = 0;
#pragma omp simd reduction(+ : squares, back)
    for (int64_t d = 0; d < count; d++) {
        squares += x[d] * x[d];
        back += gy[d] * g[d] * x[d];
    }
    real r = scale_of(squares, count);
    back *= r * r * r / (real)count;
#pragma omp simd
    for (int64_t d = 0; d < count; d++) {
        gx[d] = plus[d] + r * gy[d] * g[d] - x[d] * back;
        sums[d] += gy[d] * x[d] * r;
    }
}

static void norm_back(const Layer *l, const Cut *cut, const real *x, const real *g, const real *plus, real *gx, real *gg,
                      int threads) {
    real *sums = cut->scratch + omp_get_thread_num() * cut->own + cut->gain;
    memset(sums, 0, l->d * sizeof(real));
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->rows; i++) {
        int64_t at = i * l->d;
        norm_back_row(x + at, g, cut->r[G_NORMAL] + at, plus + at, l->d, gx + at, sums);
    }
#pragma omp for schedule(static)
    for (int64_t d = 0; d < l->d; d++) {
        real total = 0;
        for (int t = 0; t < threads; t++) total += cut->scratch[t * cut->own + cut->gain + d];
        gg[d] = total;
    }
}

#endif
