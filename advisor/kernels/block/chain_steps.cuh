/* Steps of the chains by tiles: all but attention, which each has its own way. Macros: ADV_D; TILE(COUNT): what takes a
   tile of so many products, as `tile` of products.cuh does. */
#include "chain.cuh"
#include "held_row.cuh"

INLINE void first_norm(const Chain &c, const store *x, const store *g1) { norm_rows(x, g1, c.normal, c.rows); }

INLINE void second_norm(const Chain &c, const store *g2) { norm_rows(c.middle, g2, c.normal, c.rows); }

/* This block's tile of a w^T, a [rows][inner], w [columns][inner]: done(row, column, sum). */
template <typename Done>
INLINE void product_of(const real *a, const store *w, wide rows, wide columns, int inner, Done done) {
  const store *const one[1] = {w};
  TILE(1)(a, one, int(rows), int(columns), inner, [=](int row, int column, const real *sums) { done(row, column, sums[0]); });
}

INLINE void add_mixed(const Chain &c, const store *x, const store *wo, int d_model) {
  real *middle = c.middle;
  product_of(c.mixed, wo, c.rows, d_model, int(c.own), [=](int row, int column, real sum) {
    const wide i = wide(row) * d_model + column;
    middle[i] = get(x[i]) + sum;
  });
}

INLINE void gate_all(const Chain &c, const store *wg, const store *wu, int d_ff, int d_model) {
  const store *const both[2] = {wg, wu};
  TILE(2)(c.normal, both, int(c.rows), d_ff, d_model, Gate{c.h, d_ff});
}

INLINE void add_inner(const Chain &c, const store *wd, store *y, int d_ff, int d_model) {
  const real *middle = c.middle;
  product_of(c.h, wd, c.rows, d_model, d_ff, [=](int row, int column, real sum) {
    const wide i = wide(row) * d_model + column;
    y[i] = put(middle[i] + sum);
  });
}
