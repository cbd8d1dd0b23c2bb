/* What an entry of fused is handed, as one record. After a header that says what `real` and `wide` are. */
#define CHAIN_ARGUMENTS                                                                                               \
  const real *q, const real *k, const real *v, const real *gout, real *out, real *gq, real *gk, real *gv,             \
      unsigned char *workspace, int batch, int heads, int kv_heads, int head_dim, int causal, int n
#define CHAIN                                                                                                         \
  Chain { q, k, v, gout, out, gq, gk, gv, (real *)workspace, batch, heads, kv_heads, n, causal }

struct Chain {
  const real *q, *k, *v, *gout;
  real *out, *gq, *gk, *gv, *space;
  int batch, heads, kv_heads, n, causal;
  __device__ wide rows() const { return wide(batch) * heads * n; }
  __device__ wide columns() const { return wide(batch) * kv_heads * n; }
};
