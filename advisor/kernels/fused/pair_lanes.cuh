/* Forward with A kept, then backward from A with S kept, a launch a step, a block a row or a column. */
#include "lanes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) forward_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = blockIdx.x;
  const Row row = row_of(c, t);
  weigh(row, lines);
  copy(kept(c, 0, t), lines, row.end);
  output<false>(row, lines);
#if GK_ATOMIC
  if (t < c.columns() && threadIdx.x < HD) c.gk[t * HD + threadIdx.x] = 0;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) gv_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  column_sum(c, blockIdx.x, c.space, c.gout, c.gv, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS) scores_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = blockIdx.x;
  score(row_of(c, t), kept(c, 0, t), kept(c, 1, t));
}

extern "C" __global__ void __launch_bounds__(THREADS) gradient_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = blockIdx.x;
  gradient<GK_ATOMIC>(row_of(c, t), kept(c, 1, t));
}

#if !GK_ATOMIC
extern "C" __global__ void __launch_bounds__(THREADS) gk_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  column_sum(c, blockIdx.x, c.space + c.rows() * c.n, c.q, c.gk, scale_of());
}
#endif
