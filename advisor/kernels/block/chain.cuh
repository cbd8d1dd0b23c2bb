/* What the CUDA chains of a block share: arguments, what lies between the launches, and attention of a tile of rows.

   Seven launches: norm, projections, attention, projection with residual, norm, inner products with gate, outer product
   with residual. Macro: ADV_HD, elements of a head. */
#include "products.cuh"
#ifndef ADV_HD
#define ADV_HD 64
#endif

#define ARGUMENTS                                                                                                       \
  const store *x, const store *g1, const store *wqkv, const store *wo, const store *g2, const store *wg,               \
      const store *wu, const store *wd, store *y, real *workspace, int batch, int heads, int kv_heads, int head_dim,   \
      int d_model, int d_ff, int causal, int n
#define CHAIN_OF Chain(workspace, batch, heads, kv_heads, d_model, d_ff, n)
#define CHAIN const Chain c = CHAIN_OF

/* Rows between the launches: normal [rows][d], qkv [rows][all], mixed [rows][own], middle [rows][d], h [rows][f], each
   aligned to four numbers, so that rows of whole vectors can be read as such. */
struct Chain {
  wide rows, own, all;
  real *normal, *qkv, *mixed, *middle, *h;
  INLINE Chain(real *workspace, int batch, int heads, int kv_heads, int d_model, int d_ff, int n)
      : rows(wide(batch) * n), own(wide(heads) * ADV_HD), all((wide(heads) + 2 * kv_heads) * ADV_HD) {
    normal = workspace;
    qkv = normal + aligned(rows * d_model);
    mixed = qkv + aligned(rows * all);
    middle = mixed + aligned(rows * own);
    h = middle + aligned(rows * d_model);
  }
  static INLINE wide aligned(wide count) { return (count + 3) / 4 * 4; }
};

/* log2(e) / sqrt(head_dim): scores are kept in base 2. */
INLINE real score_scale() { return real(1.4426950408889634 / sqrt(double(ADV_HD))); }

constexpr real LOWEST = real(-1e30);

/* Weights of a row are 2 ** (score - most); `shrink` is what a sum up to now is worth once `most` has grown to `now`. */
INLINE real grown(real &most, real now) {
  const real shrink = exp2(most - now);
  most = now;
  return shrink;
}
