/* One loop over rows with an atomic addition to gk alone; it keeps A, from which gv is summed by columns. */
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) clear_sums(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  clear(c.gk, c.columns() * HD);
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  const Line a = kept(c, 0, t), x = own(c, 1, t);
  attend(row, a);
  const real delta = project<false>(row, a, x);
  gradient<true>(row, [=](int j) { return a[j] * (x[j] - delta); });
}

extern "C" __global__ void __launch_bounds__(THREADS) gv_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t >= 0) gv_column(c, t);
}
