/* Back through the gate of the MLP, in vectors. */
#ifndef ADVISOR_MLP_BACKWARD_GATE_H
#define ADVISOR_MLP_BACKWARD_GATE_H

#include "real.h"

#define MOST_POWER (IS_DOUBLE ? (real)1020 : (real)125)

/* a, b, gh [rows][row] become ga, gb, h, whole vectors. Past MOST_POWER silu and its slope are as good as 0. */
static void gate_rows(real *a, real *b, real *gh, int64_t numbers) {
    for (int64_t k = 0; k < numbers; k += W) {
        vec one = load(a + k), up = load(b + k), g = load(gh + k);
        vec t = exp2_of(-larger(one * LOG2_E, -spread(MOST_POWER))), s = 1 / (1 + t);
        store(a + k, g * up * s * (1 + one * (t * s)));
        store(b + k, g * (one * s));
        store(gh + k, one * s * up);
    }
}

#endif
