/* Numbers of elements: the lesser of two, and whole cache lines. */
#ifndef ADVISOR_SIZES_H
#define ADVISOR_SIZES_H

#include "advisor.h"

typedef ADV_REAL real;

/* Numbers rounded up to whole cache lines. */
static inline int64_t lines_of(int64_t numbers) {
    int64_t line = 64 / (int64_t)sizeof(real);
    return (numbers + line - 1) / line * line;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
