/* Forward with A kept, then backward from A with S kept, a launch a step: the pair that fused variants are compared with. */
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) forward_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  attend(row_of(c, t), kept(c, 0, t));
#if GK_ATOMIC
  if (t < c.columns())
    for (int d = 0; d < HD; d++) c.gk[t * HD + d] = 0;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) gv_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t >= 0) gv_column(c, t);
}

extern "C" __global__ void __launch_bounds__(THREADS) scores_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  const Line a = kept(c, 0, t), s = kept(c, 1, t);
  const real delta = project<false>(row, a, s);
  for (int j = 0; j < row.end; j++) s[j] = a[j] * (s[j] - delta);
}

extern "C" __global__ void __launch_bounds__(THREADS) gradient_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Line s = kept(c, 1, t);
  gradient<GK_ATOMIC>(row_of(c, t), [=](int j) { return s[j]; });
}

#if !GK_ATOMIC
extern "C" __global__ void __launch_bounds__(THREADS) gk_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t >= 0) gk_column(c, t);
}
#endif
