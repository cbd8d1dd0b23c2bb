/* ga, gb and h of some rows and panels. */
#ifndef ADVISOR_MLP_BACKWARD_PRODUCT_H
#define ADVISOR_MLP_BACKWARD_PRODUCT_H

#include "sliced.h"

#include "call.h"
#include "gate.h"

/* a, b and gh of rows `first` and on, panels from f on: [rows][count * PANEL] each, one behind the other; then ga, gb, h. */
static void within(const Call *c, int64_t first, int64_t rows, int64_t f, int64_t count, real *own, real *room) {
    int64_t row = count * PANEL;
    real *b = own + rows * row, *gh = b + rows * row;
    Left x = {c->x + first * c->d, c->d, 1}, gy = {c->gy + first * c->d, c->d, 1};
    product(x, rows, (Right){c->wg, 1, c->d, c->f}, f, count, c->d, 0, own, row, room);
    product(x, rows, (Right){c->wu, 1, c->d, c->f}, f, count, c->d, 0, b, row, room);
    product(gy, rows, (Right){c->wd, c->f, 1, c->f}, f, count, c->d, 0, gh, row, room);
    gate_rows(own, b, gh, rows * row);
}

#endif
