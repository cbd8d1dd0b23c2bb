/* Weights that are computed anew where they are needed: of a row r only lse[r] = log sum exp and delta[r] are kept. */
#include "rows.cuh"

/* lse [rows], then delta [rows]. */
__device__ __forceinline__ real *lse_of(const Chain &c) { return c.space; }
__device__ __forceinline__ real *delta_of(const Chain &c) { return c.space + c.rows(); }

/* A[r,j] of `x` = q[r] and `y` = k[j]. */
__device__ __forceinline__ real weight_of(const real *x, const real *y, real lse) { return power(dot(x, y) * scale_of() - lse); }

/* Writes a row of out and keeps its statistics. */
__device__ __forceinline__ void attend_and_keep(const Chain &c, const Row &row, wide t) {
  const Statistics found = attend_online(row);
  lse_of(c)[t] = found.most + log(found.total);
  delta_of(c)[t] = dot(row.out, row.gout);
}

/* Writes a row of gq; ATOMIC: adds to gk on the way. */
template <bool ATOMIC> __device__ __forceinline__ void gradient_anew(const Chain &c, const Row &row, wide t) {
  const real lse = lse_of(c)[t], delta = delta_of(c)[t];
  gradient<ATOMIC>(row, [=](int j) {
    return weight_of(row.q, row.k + wide(j) * HD, lse) * (dot(row.gout, row.v + wide(j) * HD) - delta);
  });
}

/* Row t of gv. */
__device__ __forceinline__ void gv_column_anew(const Chain &c, wide t) {
  const real *lse = lse_of(c), *key = c.k + t * HD;
  column_sum(c, column_of(c, t), c.gout, c.gv + t * HD,
             [=](wide r) { return weight_of(c.q + r * HD, key, lse[r]); });
}

/* Row t of gk. */
__device__ __forceinline__ void gk_column_anew(const Chain &c, wide t) {
  const real *lse = lse_of(c), *delta = delta_of(c), *key = c.k + t * HD, *value = c.v + t * HD, scale = scale_of();
  column_sum(c, column_of(c, t), c.q, c.gk + t * HD, [=](wide r) {
    return weight_of(c.q + r * HD, key, lse[r]) * (dot(c.gout + r * HD, value) - delta[r]) * scale;
  });
}
