/* The call of a transformer block. Letters as in transformer.py. */
#ifndef ADVISOR_BLOCK_CALL_H
#define ADVISOR_BLOCK_CALL_H

#include "layer.h"

/* buffers: x [rows][d], g1 [d], wqkv [p][d], wo [d][h * e], g2 [d], wg, wu [f][d], wd [d][f], y [rows][d], then what a
   variant prepared; dims: those of a layer. */
typedef struct {
    const real *x, *g1, *wqkv, *wo, *g2, *wg, *wu, *wd;
    real *y;
    Layer l;
} Block;

static inline Block block_of(void *const *buffers, const int64_t *dims) {
    Block c = {0};
    const real **inputs[] = {&c.x, &c.g1, &c.wqkv, &c.wo, &c.g2, &c.wg, &c.wu, &c.wd};
    for (int b = 0; b < 8; b++) *inputs[b] = (const real *)buffers[b];
    c.y = (real *)buffers[8];
    c.l = layer_of(dims);
    return c;
}

#endif
