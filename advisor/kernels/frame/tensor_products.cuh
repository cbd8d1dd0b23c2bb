/* Tiles of products as in products.cuh on the tensor cores, in the accuracy of the arithmetic: see tensor_tiles.cuh.

   Eight warps take a tile of 64 x 64 results, each sixteen rows and 32 columns of every product. */
#include "products.cuh"
#include "tensor_tiles.cuh"

/* As `tile` of products.cuh. A lane's fragments lie so in shared memory that half a warp meets no bank twice. */
template <int PRODUCTS, typename A, typename Done>
INLINE void tensor_tile(const A *a, const store *const (&b)[PRODUCTS], int rows, int columns, int length, Done done) {
  typedef Tile<4, 4, PRODUCTS> Shape;
  __shared__ Shape shared;
  const int first = blockIdx.y * Shape::ROWS, across = blockIdx.x * Shape::COLUMNS, t = lane_pair();
  const int down = threadIdx.x / 32 % 4 * 16, right_of = threadIdx.x / 128 * 32;
  const int row = down + lane_row(), column = right_of + lane_row();
  Sum<32> sum[PRODUCTS];
  real next_a[4], next_b[PRODUCTS][4];
  fetch<4>(next_a, a, first, rows, 0, length);
#pragma unroll
  for (int p = 0; p < PRODUCTS; p++) {
    zero(sum[p]);
    fetch<4>(next_b[p], b[p], across, columns, 0, length);
  }
  for (int k = 0; k < length; k += DEPTH) {
    keep<4>(next_a, shared.a);
#pragma unroll
    for (int p = 0; p < PRODUCTS; p++) keep<4>(next_b[p], shared.b[p]);
    __syncthreads();
    if (k + DEPTH < length) {
      fetch<4>(next_a, a, first, rows, k + DEPTH, length);
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) fetch<4>(next_b[p], b[p], across, columns, k + DEPTH, length);
    }
#pragma unroll
    for (int d = t; d < DEPTH; d += 8) {
      const Left l = left(shared.a[d][row], shared.a[d][row + 8], shared.a[d + 4][row], shared.a[d + 4][row + 8]);
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          multiply(sum[p].c[j], l, right(shared.b[p][d][column + 8 * j], shared.b[p][d + 4][column + 8 * j]));
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int i = first + down + row_in_tile(e), o = across + right_of + column_in_tile(j, e);
      real sums[PRODUCTS];
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++) sums[p] = sum[p].c[j][e];
      if (i < rows && o < columns) done(i, o, sums);
    }
}
