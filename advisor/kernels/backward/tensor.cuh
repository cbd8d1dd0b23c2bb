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

/* A warp a query row, four of them a block: lse, delta, and in gq zeros where it is added to. */
template <bool ATOMIC> __device__ __forceinline__ void first_rows(const Gradients &c, const real *out, const real *lse) {
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= c.n) return;
  const wide at = wide(blockIdx.y) * c.n + row;
  real delta = 0;
  for (int d = lane; d < HD; d += 32) delta = fma(c.gout[at * HD + d], out[at * HD + d], delta);
#pragma unroll
  for (int o = 16; o; o >>= 1) delta += __shfl_xor_sync(0xffffffffu, delta, o);
  if (ATOMIC)
    for (int d = lane; d < HD; d += 32) c.gq[at * HD + d] = 0;
  if (lane) return;
  c.lse[at] = lse[at] * LOG2E;
  c.delta[at] = delta;
}
