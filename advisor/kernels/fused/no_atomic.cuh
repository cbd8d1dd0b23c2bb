/* One loop over rows keeps A and S, from which gv and gk are summed by columns: no atomic addition. */
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  const Line a = kept(c, 0, t), s = kept(c, 1, t);
  attend(row, a);
  const real delta = project<false>(row, a, s);
  gradient<false>(row, [=](int j) { return s[j] = a[j] * (s[j] - delta); });
}

extern "C" __global__ void __launch_bounds__(THREADS) sum_columns(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.columns());
  if (t < 0) return;
  gv_column(c, t);
  gk_column(c, t);
}
