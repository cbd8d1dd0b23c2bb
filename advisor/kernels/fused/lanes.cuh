/* A block a row, or a column: its lanes take rows j side by side where a row of A is made, and the elements of a head,
   which lie side by side in memory, where rows are summed. A and S of a row are in shared memory. */
#include "chain.cuh"

/* sums over j that a block does side by side, a lane an element */
constexpr int GROUPS = HD < THREADS ? THREADS / HD : 1;

/* Dynamic shared memory: a row of A, then one of S where a variant has it. */
extern __shared__ real lines[];

/* The largest or the sum of all threads' x, for all threads. */
template <bool LARGEST> __device__ __forceinline__ real joined(real x) {
  __shared__ real parts[THREADS];
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int o = THREADS / 2; o; o /= 2) {
    if (threadIdx.x < o) {
      const real mine = parts[threadIdx.x], other = parts[threadIdx.x + o];
      parts[threadIdx.x] = LARGEST ? max(mine, other) : mine + other;
    }
    __syncthreads();
  }
  x = parts[0];
  __syncthreads();
  return x;
}

/* A row [HD] in shared memory. */
__device__ __forceinline__ void stage(real *to, const real *from) {
  for (int d = threadIdx.x; d < HD; d += THREADS) to[d] = from[d];
  __syncthreads();
}

/* Fills a row of A in shared memory. */
__device__ __forceinline__ void weigh(const Row &row, real *a) {
  __shared__ real query[HD];
  stage(query, row.q);
  const real scale = scale_of();
  real most = LOWEST, total = 0;
  for (int j = threadIdx.x; j < row.end; j += THREADS) {
    const real s = dot(query, row.k + wide(j) * HD) * scale;
    a[j] = s;
    if (s > most) most = s;
  }
  most = joined<true>(most);
  for (int j = threadIdx.x; j < row.end; j += THREADS) {
    const real e = power(a[j] - most);
    a[j] = e;
    total += e;
  }
  total = joined<false>(total);
  for (int j = threadIdx.x; j < row.end; j += THREADS) a[j] /= total;
  __syncthreads();
}

/* Fills a row of S from one of A. */
__device__ __forceinline__ void score(const Row &row, const real *a, real *s) {
  __shared__ real cotangent[HD];
  stage(cotangent, row.gout);
  real delta = 0;
  for (int j = threadIdx.x; j < row.end; j += THREADS) {
    const real x = dot(cotangent, row.v + wide(j) * HD);
    s[j] = x;
    delta += a[j] * x;
  }
  delta = joined<false>(delta);
  for (int j = threadIdx.x; j < row.end; j += THREADS) s[j] = a[j] * (s[j] - delta);
  __syncthreads();
}

/* Row t of matrix `which` of the workspace. */
__device__ __forceinline__ real *kept(const Chain &c, int which, wide t) { return c.space + (which * c.rows() + t) * c.n; }

/* Copies the first `end` elements of a row. */
__device__ __forceinline__ void copy(real *to, const real *from, int end) {
  for (int j = threadIdx.x; j < end; j += THREADS) to[j] = from[j];
}

/* The sum of term(j, d) over this thread's j of first .. end-1, for its element d. */
template <typename Term> __device__ __forceinline__ real part_sum(int first, int end, Term term) {
  const int d = threadIdx.x % HD, group = threadIdx.x / HD;
  real sum = 0;
  if (group < GROUPS)
    for (int j = first + group; j < end; j += GROUPS) sum += term(j, d);
  return sum;
}

/* Writes the groups' sums as one row [HD]. */
__device__ __forceinline__ void write_sum(real sum, real *to) {
  __shared__ real parts[THREADS];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int d = threadIdx.x; d < HD; d += THREADS) {
    real all = 0;
    for (int g = 0; g < GROUPS; g++) all += parts[g * HD + d];
    to[d] = all;
  }
  __syncthreads();
}

/* Writes a row of out from one of A; ATOMIC: adds A[t,j] gout to gv[j] on the way. */
template <bool ATOMIC> __device__ __forceinline__ void output(const Row &row, const real *a) {
  write_sum(part_sum(0, row.end,
                     [=](int j, int d) {
                       if (ATOMIC) atomicAdd(&row.gv[wide(j) * HD + d], a[j] * row.gout[d]);
                       return a[j] * row.v[wide(j) * HD + d];
                     }),
            row.out);
}

/* Writes a row of gq from one of S; ATOMIC: adds to gk on the way. */
template <bool ATOMIC> __device__ __forceinline__ void gradient(const Row &row, const real *s) {
  const real scale = scale_of();
  write_sum(part_sum(0, row.end,
                     [=](int j, int d) {
                       const real w = s[j] * scale;
                       if (ATOMIC) atomicAdd(&row.gk[wide(j) * HD + d], w * row.q[d]);
                       return w * row.k[wide(j) * HD + d];
                     }),
            row.gq);
}

/* Writes `scale` times the sum over a column's query rows r of w[r,j] x[r]; w: [rows][n]. */
__device__ __forceinline__ void column_sum(const Chain &c, wide t, const real *w, const real *x, real *to, real scale) {
  const Column column = column_of(c, t);
  real sum = 0;
  for (int h = 0; h < column.sharing; h++) {
    const wide start = column.start + wide(h) * c.n;
    sum += part_sum(column.first, c.n,
                    [=](int i, int d) { return w[(start + i) * c.n + column.j] * x[(start + i) * HD + d]; });
  }
  write_sum(sum * scale, to + t * HD);
}
