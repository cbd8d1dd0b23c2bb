/* The call of the gradients of a transformer block. Letters as in transformer.py. */
#ifndef ADVISOR_BLOCK_BACKWARD_CALL_H
#define ADVISOR_BLOCK_BACKWARD_CALL_H

#include "layer.h"
#include "sizes.h"

/* buffers: x [rows][d], g1 [d], wqkv [p][d], wo [d][h * e], g2 [d], wg, wu [f][d], wd [d][f], gy [rows][d]; gx [rows][d],
   then the gradients of the weights in their order; dims: those of a layer. */
typedef struct {
    const real *x, *g1, *wqkv, *wo, *g2, *wg, *wu, *wd, *gy;
    real *gx, *gg1, *gwqkv, *gwo, *gg2, *gwg, *gwu, *gwd;
    Layer l;
} Block;

static inline Block block_of(void *const *buffers, const int64_t *dims) {
    Block c = {0};
    const real **inputs[] = {&c.x, &c.g1, &c.wqkv, &c.wo, &c.g2, &c.wg, &c.wu, &c.wd, &c.gy};
    real **outputs[] = {&c.gx, &c.gg1, &c.gwqkv, &c.gwo, &c.gg2, &c.gwg, &c.gwu, &c.gwd};
    for (int b = 0; b < 9; b++) *inputs[b] = (const real *)buffers[b];
    for (int b = 0; b < 8; b++) *outputs[b] = (real *)buffers[9 + b];
    c.l = layer_of(dims);
    return c;
}

/* What the steps leave for those behind them, of all rows. NORMAL, NORMAL_2: what RMSNorm made; MIXED: attention's result
   by rows, OUT: by heads; GA, GB: a and b first; H: gh first. */
enum { NORMAL, QKV, HEADS, OUT, MIXED, MIDDLE, NORMAL_2, GA, GB, H, G_NORMAL, G_MIDDLE, G_MIXED, G_OUT, G_HEADS, G_QKV, PARTS };

/* Where each begins, in numbers; `all`: of them together. */
typedef struct {
    int64_t at[PARTS], all;
} Plan;

static inline Plan plan_of(const Layer *l) {
    const int64_t widths[PARTS] = {[NORMAL] = l->d,   [QKV] = l->all,      [HEADS] = l->all,    [OUT] = l->own,
                                   [MIXED] = l->own,  [MIDDLE] = l->d,     [NORMAL_2] = l->d,   [GA] = l->f,
                                   [GB] = l->f,       [H] = l->f,          [G_NORMAL] = l->d,   [G_MIDDLE] = l->d,
                                   [G_MIXED] = l->own, [G_OUT] = l->own,   [G_HEADS] = l->all,  [G_QKV] = l->all};
    Plan plan = {0};
    for (int part = 0; part < PARTS; part++) plan.at[part] = plan.all, plan.all += lines_of(l->rows * widths[part]);
    return plan;
}

static inline void place_parts(const Plan *plan, real *at, real **parts) {
    for (int part = 0; part < PARTS; part++) parts[part] = at + plan->at[part];
}

#endif
