/* Products of few rows: a warp reads two rows of the weights once for all rows of a, 16 bytes a lane.

   Macro: ADV_UNROLL, loads of a lane that are under way. */
#include "numbers.cuh"
#ifndef ADV_UNROLL
#define ADV_UNROLL 4
#endif

/* sum[m][r] += row r of a [rows][LENGTH] times row m of the weights, over what this lane has of LENGTH; then over lanes. */
template <int LENGTH, int ROWS, typename A>
INLINE void dots(real (&sum)[2][ROWS], const A *a, const store *const (&w)[2], int rows) {
  constexpr int STEP = LENGTH % PACK == 0 ? PACK : 1, SPAN = 32 * STEP;
  for (int first = threadIdx.x % 32 * STEP; first < LENGTH; first += ADV_UNROLL * SPAN) {
    __align__(16) store piece[ADV_UNROLL][2][STEP];
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++)
#pragma unroll
      for (int m = 0; m < 2; m++)
        if (first + u * SPAN < LENGTH) take<STEP>(w[m] + first + u * SPAN, piece[u][m]);
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) {
      const int at = first + u * SPAN;
      if (at >= LENGTH) break;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (r >= rows) break;
        real own[STEP];
        take_real<STEP>(a + r * LENGTH + at, own);
#pragma unroll
        for (int e = 0; e < STEP; e++)
#pragma unroll
          for (int m = 0; m < 2; m++) sum[m][r] = fma(own[e], get(piece[u][m][e]), sum[m][r]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum[m][r] = lanes_sum<32>(sum[m][r]);
}

template <int N> struct Count { static constexpr int value = N; };

/* f for as many rows as there are, up to 8, rounded up to a power of two: sums of others would take registers. */
template <typename Do> INLINE void by_rows(int rows, Do f) {
  if (rows == 1) f(Count<1>());
  else if (rows == 2) f(Count<2>());
  else if (rows <= 4) f(Count<4>());
  else f(Count<8>());
}

/* Of all rows of a the products with rows `at` and `at + 1` of w [outputs][LENGTH]: done(row, output, sum), by one lane
   each. One warp. */
template <int LENGTH, typename A, typename Done>
INLINE void two_outputs(const A *a, const store *w, int at, int outputs, int rows, Done done) {
  by_rows(rows, [=](auto count) {
    constexpr int ROWS = decltype(count)::value;
    real sum[2][ROWS] = {};
    const store *const both[2] = {w + wide(at) * LENGTH, w + wide(min(at + 1, outputs - 1)) * LENGTH};
    dots<LENGTH>(sum, a, both, rows);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int m = 0; m < 2; m++)
        if (threadIdx.x % 32 == 2 * r + m && r < rows && at + m < outputs) done(r, at + m, sum[m][r]);
  });
}

/* Element f of h [rows][outputs], silu(a wg[f]) (a wu[f]), of all rows of a. One warp. */
template <int LENGTH, typename A>
INLINE void gate_of(const A *a, const store *wg, const store *wu, real *h, int f, int outputs, int rows) {
  by_rows(rows, [=](auto count) {
    constexpr int ROWS = decltype(count)::value;
    real sum[2][ROWS] = {};
    const store *const both[2] = {wg + wide(f) * LENGTH, wu + wide(f) * LENGTH};
    dots<LENGTH>(sum, a, both, rows);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (threadIdx.x % 32 == r && r < rows) h[r * outputs + f] = silu(sum[0][r]) * sum[1][r];
  });
}
