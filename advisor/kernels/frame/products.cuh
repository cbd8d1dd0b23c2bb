/* Tiles of products a b^T with rows of both along the sum, through shared memory: c[i][o] = sum over k of a[i][k] b[o][k].

   256 threads, 16 x 16, take a tile of 16 TM x 16 TN results and hold TM x TN of each product in registers. While they
   multiply DEPTH steps of k, the next DEPTH are on their way into registers. */
#include "numbers.cuh"

constexpr int DEPTH = 16, SIDE = 16;

template <int TM, int TN, int PRODUCTS> struct Tile {
  static constexpr int ROWS = SIDE * TM, COLUMNS = SIDE * TN;
  /* k first, so that a thread's own rows lie side by side; padded by a vector's width against bank conflicts */
  real a[DEPTH][ROWS + 4], b[PRODUCTS][DEPTH][COLUMNS + 4];
};

/* COUNT x 16 rows of DEPTH numbers of a matrix [rows][inner], on their way: zeros outside of it. Sixteen threads that lie
   side by side read what lies side by side. */
template <int COUNT, typename T> INLINE void fetch(real (&found)[COUNT], const T *from, int first, int rows, int k, int inner) {
  const int at = k + threadIdx.x % DEPTH, line = first + threadIdx.x / DEPTH;
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const int row = line + i * SIDE;
    found[i] = row < rows && at < inner ? get(from[wide(row) * inner + at]) : real(0);
  }
}
template <int COUNT, int WIDTH> INLINE void keep(const real (&found)[COUNT], real (&to)[DEPTH][WIDTH]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) to[threadIdx.x % DEPTH][threadIdx.x / DEPTH + i * SIDE] = found[i];
}

/* The tile of this block: PRODUCTS products of the same rows of a. a [rows][inner], b[p] [columns][inner]; `done` gets
   each result: (row, column, sums of all products). */
template <int TM, int TN, int PRODUCTS, typename A, typename Done>
INLINE void tile(const A *a, const store *const (&b)[PRODUCTS], int rows, int columns, int inner, Done done) {
  typedef Tile<TM, TN, PRODUCTS> Shape;
  __shared__ Shape shared;
  const int first = blockIdx.y * Shape::ROWS, across = blockIdx.x * Shape::COLUMNS;
  const int x = threadIdx.x % SIDE * TN, y = threadIdx.x / SIDE * TM;
  real sum[PRODUCTS][TM][TN] = {}, next_a[TM], next_b[PRODUCTS][TN];
  fetch<TM>(next_a, a, first, rows, 0, inner);
#pragma unroll
  for (int p = 0; p < PRODUCTS; p++) fetch<TN>(next_b[p], b[p], across, columns, 0, inner);
  for (int k = 0; k < inner; k += DEPTH) {
    keep<TM>(next_a, shared.a);
#pragma unroll
    for (int p = 0; p < PRODUCTS; p++) keep<TN>(next_b[p], shared.b[p]);
    __syncthreads();
    if (k + DEPTH < inner) {
      fetch<TM>(next_a, a, first, rows, k + DEPTH, inner);
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) fetch<TN>(next_b[p], b[p], across, columns, k + DEPTH, inner);
    }
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      real left[TM], right[PRODUCTS][TN];
#pragma unroll
      for (int i = 0; i < TM; i++) left[i] = shared.a[d][y + i];
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) {
#pragma unroll
        for (int j = 0; j < TN; j++) right[p][j] = shared.b[p][d][x + j];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) sum[p][i][j] = fma(left[i], right[p][j], sum[p][i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int row = first + y + i, column = across + x + j;
      real sums[PRODUCTS];
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) sums[p] = sum[p][i][j];
      if (row < rows && column < columns) done(row, column, sums);
    }
}

/* What is done with both inner products of an MLP: h = silu(a) b, [rows][f]. */
struct Gate {
  real *h;
  int f;
  INLINE void operator()(int row, int column, const real *sums) const {
    h[wide(row) * f + column] = silu(sums[0]) * sums[1];
  }
};

/* The dot product of two rows by one thread. */
template <typename A> INLINE real dot(const A *a, const store *b, int length) {
  real sum = 0;
  for (int k = 0; k < length; k++) sum = fma(get(a[k]), get(b[k]), sum);
  return sum;
}
