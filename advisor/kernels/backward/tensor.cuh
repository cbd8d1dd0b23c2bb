/* What the variants on the tensor cores take, and what they make of a query row first. */
#include "gradient_tiles.cuh"

#define PARAMETERS                                                                                                      \
  const real *q, const real *k, const real *v, const real *out, const real *lse, const real *gout, real *gq, real *gk, \
      real *gv, unsigned char *workspace, int batch, int heads, int kv_heads, int head_dim, int causal, int n,         \
      int tiles, int row_bytes, int tile_bytes
/* The workspace holds lse in base 2, then delta. */
#define GRADIENTS                                                                                              \
  Gradients {                                                                                                  \
    q, k, v, gout, gq, gk, gv, (real *)workspace, (real *)workspace + wide(batch) * heads * n, heads / kv_heads, \
        causal, n                                                                                              \
  }

/* What lane `lane` of `lanes` adds to delta of the row `at` of all. */
__device__ __forceinline__ real part_of_delta(const real *gout, const real *out, wide at, int lane, int lanes) {
  real delta = 0;
#pragma unroll 4
  for (int d = lane; d < HD; d += lanes) delta = fma(gout[at * HD + d], out[at * HD + d], delta);
  return delta;
}
