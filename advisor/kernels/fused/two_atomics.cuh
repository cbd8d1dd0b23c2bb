/* One loop over rows does all, with an atomic addition to gv and one to gk; A and S are private rows of a thread. */
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) clear_sums(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  clear(c.gk, c.columns() * HD);
  clear(c.gv, c.columns() * HD);
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_rows(CHAIN_ARGUMENTS) {
  const Chain c = CHAIN;
  const wide t = worker(c.rows());
  if (t < 0) return;
  const Row row = row_of(c, t);
  const Line a = own(c, 0, t), x = own(c, 1, t);
  attend(row, a);
  const real delta = project<true>(row, a, x);
  gradient<true>(row, [=](int j) { return a[j] * (x[j] - delta); });
}
