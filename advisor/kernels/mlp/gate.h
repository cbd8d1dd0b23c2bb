/* silu(a) b in vectors. */
#ifndef ADVISOR_MLP_GATE_H
#define ADVISOR_MLP_GATE_H

#include "real.h"

/* The powers of two that exp2_of has above 1: past them silu is under 1e-36 (float) or 1e-305 (double), as good as 0. */
#define MOST_POWER (IS_DOUBLE ? (real)1020 : (real)125)

INLINE vec gated(vec a, vec b) {
    vec most = spread(MOST_POWER);
    vec x = -larger(a * LOG2_E, -most); /* -a / ln 2, at most MOST_POWER */
    return a / (1 + exp2_of(x)) * b;
}

#endif
