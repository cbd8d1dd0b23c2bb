/* A thread a row, or a column: the walk over one row of A and S. SPREAD, which a variant sets: threads of which one
   works, 1 where all do (packed), 32 where one lane of a warp does. */
#include "chain.cuh"

/* The row or column of this thread; none: -1. */
__device__ __forceinline__ wide worker(wide count) {
  const wide t = wide(blockIdx.x) * THREADS + threadIdx.x;
  return t % SPREAD || t / SPREAD >= count ? -1 : t / SPREAD;
}

/* One row of numbers of order n^2, `step` apart. */
struct Line {
  real *first;
  wide step;
  __device__ real &operator[](int j) const { return first[j * step]; }
};

/* Row t of matrix `which` of the workspace, row after row. */
__device__ __forceinline__ Line kept(const Chain &c, int which, wide t) { return {c.space + (which * c.rows() + t) * c.n, 1}; }

/* The same as an array of one thread lies in local memory: elements of all threads side by side. A lane that works
   alone has nobody beside it. */
__device__ __forceinline__ Line own(const Chain &c, int which, wide t) {
  if (SPREAD > 1) return kept(c, which, t);
  return {c.space + which * c.rows() * c.n + t, c.rows()};
}

/* Fills a row of A, and writes its row of out. */
__device__ __forceinline__ void attend(const Row &row, Line a) {
  const real scale = scale_of();
  real most = LOWEST, total = 0, sum[HD];
  for (int j = 0; j < row.end; j++) {
    const real s = dot(row.q, row.k + wide(j) * HD) * scale;
    a[j] = s;
    if (s > most) most = s;
  }
  for (int j = 0; j < row.end; j++) {
    const real e = power(a[j] - most);
    a[j] = e;
    total += e;
  }
#pragma unroll
  for (int d = 0; d < HD; d++) sum[d] = 0;
  for (int j = 0; j < row.end; j++) {
    const real w = a[j] / total;
    a[j] = w;
#pragma unroll
    for (int d = 0; d < HD; d++) sum[d] += w * row.v[wide(j) * HD + d];
  }
#pragma unroll
  for (int d = 0; d < HD; d++) row.out[d] = sum[d];
}

/* What `attend` leaves of a row where its weights are not kept: their logarithm needs only this. */
struct Statistics {
  real most, total;
};

/* Writes a row of out, with a running maximum: no row of A. */
__device__ __forceinline__ Statistics attend_online(const Row &row) {
  const real scale = scale_of();
  real most = LOWEST, total = 0, sum[HD];
#pragma unroll
  for (int d = 0; d < HD; d++) sum[d] = 0;
  for (int j = 0; j < row.end; j++) {
    const real s = dot(row.q, row.k + wide(j) * HD) * scale;
    if (s > most) {
      const real shrink = power(most - s);
      total *= shrink;
#pragma unroll
      for (int d = 0; d < HD; d++) sum[d] *= shrink;
      most = s;
    }
    const real e = power(s - most);
    total += e;
#pragma unroll
    for (int d = 0; d < HD; d++) sum[d] += e * row.v[wide(j) * HD + d];
  }
#pragma unroll
  for (int d = 0; d < HD; d++) row.out[d] = sum[d] / total;
  return {most, total};
}

/* Fills a row of gout . v and returns delta; ATOMIC: adds A[t,j] gout to gv[j] on the way. */
template <bool ATOMIC> __device__ __forceinline__ real project(const Row &row, Line a, Line x) {
  real delta = 0;
  for (int j = 0; j < row.end; j++) {
    const real w = a[j];
    real product = 0;
    for (int d = 0; d < HD; d++) {
      product += row.gout[d] * row.v[wide(j) * HD + d];
      if (ATOMIC) atomicAdd(&row.gv[wide(j) * HD + d], w * row.gout[d]);
    }
    x[j] = product;
    delta += w * product;
  }
  return delta;
}

/* Writes a row of gq; ATOMIC: adds to gk on the way. weight(j): S[t,j]. */
template <bool ATOMIC, typename Weight> __device__ __forceinline__ void gradient(const Row &row, Weight weight) {
  const real scale = scale_of();
  real sum[HD];
#pragma unroll
  for (int d = 0; d < HD; d++) sum[d] = 0;
  for (int j = 0; j < row.end; j++) {
    const real w = weight(j) * scale;
#pragma unroll
    for (int d = 0; d < HD; d++) {
      sum[d] += w * row.k[wide(j) * HD + d];
      if (ATOMIC) atomicAdd(&row.gk[wide(j) * HD + d], w * row.q[d]);
    }
  }
#pragma unroll
  for (int d = 0; d < HD; d++) row.gq[d] = sum[d];
}

/* Writes the sum over a column's query rows r of weight(r) x[r]. */
template <typename Weight>
__device__ __forceinline__ void column_sum(const Chain &c, const Column &column, const real *x, real *to, Weight weight) {
  real sum[HD];
#pragma unroll
  for (int d = 0; d < HD; d++) sum[d] = 0;
  for (int h = 0; h < column.sharing; h++)
    for (int i = column.first; i < c.n; i++) {
      const wide r = column.start + wide(h) * c.n + i;
      const real w = weight(r);
#pragma unroll
      for (int d = 0; d < HD; d++) sum[d] += w * x[r * HD + d];
    }
#pragma unroll
  for (int d = 0; d < HD; d++) to[d] = sum[d];
}

/* Row t of gv from A that is kept (matrix 0), of gk from S that is kept (matrix 1). */
__device__ __forceinline__ void gv_column(const Chain &c, wide t) {
  const Column column = column_of(c, t);
  const real *a = c.space + column.j;
  column_sum(c, column, c.gout, c.gv + t * HD, [=](wide r) { return a[r * c.n]; });
}

__device__ __forceinline__ void gk_column(const Chain &c, wide t) {
  const Column column = column_of(c, t);
  const real *s = c.space + c.rows() * c.n + column.j, scale = scale_of();
  column_sum(c, column, c.q, c.gk + t * HD, [=](wide r) { return s[r * c.n] * scale; });
}
