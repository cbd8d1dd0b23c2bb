/* What the CUDA variants of forward share: types (`store` is what operands hold, `real` what is computed in), and where
   the rows of a query head and of its keys lie.

   No header of CUDA's is included, so that NVRTC needs no include path. Macros of the frame: ADV_DTYPE. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 2
#endif
#ifndef ADV_HD
#define ADV_HD 64
#endif
#if ADV_DTYPE == 1
typedef double real;
typedef double store;
#elif ADV_DTYPE == 2
typedef float real;
typedef float store;
#else
typedef float real;
typedef unsigned short store;
#endif
typedef long long wide;

#define LOWEST real(-1e30)
#define FULL 0xffffffffu
#define FORWARD_ARGUMENTS                                                                                             \
  const store *q, const store *k, const store *v, store *out, unsigned char *workspace, int batch, int heads,         \
      int kv_heads, int head_dim, int causal, int n

__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ double power(double x) { return exp(x); }

__device__ __forceinline__ real score_scale() { return real(1) / real(sqrt(double(ADV_HD))); }

/* First row of the head of k and v that query head `head` of all sequences reads. */
__device__ __forceinline__ wide keys_of(int head, int heads, int kv_heads, int n) {
  return wide(head / (heads / kv_heads)) * n; /* b * kv_heads + h / sharing, since heads = kv_heads * sharing */
}
