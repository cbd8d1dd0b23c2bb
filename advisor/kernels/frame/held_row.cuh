/* RMSNorm of a row that TEAM threads hold in registers: it is read once, 16 bytes a thread and step where that fits.

   Macro: ADV_D, elements of a row. */
#include "numbers.cuh"
#ifndef ADV_D
#define ADV_D 64
#endif

/* numbers of one load; loads of a thread */
constexpr int WIDTH = ADV_D % PACK == 0 ? PACK : 1;
template <int TEAM> constexpr int PIECES = (ADV_D + TEAM * WIDTH - 1) / (TEAM * WIDTH);

/* x, g, y [ADV_D]; `my`: which of the team this thread is. TEAM up to 32: lanes side by side, else the whole block. A
   thread that has no row of its own takes part with another's and does not keep it. */
template <int TEAM, typename In, typename Out>
INLINE void norm_row(const In *x, const store *g, Out *y, int my, bool keep) {
  constexpr int MANY = PIECES<TEAM>;
  real own[MANY][WIDTH], squares = 0;
  __align__(16) store gain[MANY][WIDTH];
#pragma unroll
  for (int p = 0; p < MANY; p++) {
    const int at = (p * TEAM + my) * WIDTH;
    if (at < ADV_D) {
      take<WIDTH>(g + at, gain[p]);
      take_real<WIDTH>(x + at, own[p]);
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; e++) own[p][e] = 0;
    }
  }
#pragma unroll
  for (int p = 0; p < MANY; p++)
#pragma unroll
    for (int e = 0; e < WIDTH; e++) squares += own[p][e] * own[p][e];
  if constexpr (TEAM <= 32) {
    squares = lanes_sum<TEAM>(squares);
  } else {
    squares = block_sum<TEAM>(squares);
  }
  const real r = real(1) / sqrt(squares / real(ADV_D) + EPS);
  if (!keep) return;
#pragma unroll
  for (int p = 0; p < MANY; p++) {
    const int at = (p * TEAM + my) * WIDTH;
    if (at < ADV_D) {
#pragma unroll
      for (int e = 0; e < WIDTH; e++) own[p][e] *= r * get(gain[p][e]);
      give_real<WIDTH>(own[p], y + at);
    }
  }
}

/* Blocks of 256 threads take rows [rows][ADV_D]: a warp a row, where rows are wide a block. */
constexpr int NORM_TEAM = ADV_D <= 1024 ? 32 : 256;

template <typename In, typename Out> INLINE void norm_rows(const In *x, const store *g, Out *y, wide rows) {
  const wide row = wide(blockIdx.x) * (256 / NORM_TEAM) + threadIdx.x / NORM_TEAM, mine = row < rows ? row : rows - 1;
  norm_row<NORM_TEAM>(x + mine * ADV_D, g, y + mine * ADV_D, threadIdx.x % NORM_TEAM, row < rows);
}
