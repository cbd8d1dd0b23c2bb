/* variant {
  "idea": "every thread adds 16-byte vectors of k and v, a grid apart, and nothing else is done",
  "language": "cuda", "symbol": "read_floor", "dtypes": ["float32", "bfloat16", "float16"], "requires": ["sm_80"],
  "macros": {}, "build_knobs": {"ADV_UNROLL": [2, 4, 8]}, "run_knobs": {"blocks": [132, 264, 528, 1056, 2112]},
  "defaults": {"ADV_UNROLL": 4, "blocks": 528},
  "valid": ["batch * kv_heads * head_dim * 2 % 16 == 0"],
  "reads": "2 * batch * kv_heads * n * head_dim", "writes": "1", "atomics": "2 * blocks",
  "derived": {"vectors": "batch * kv_heads * n * head_dim * item_bytes // 16"},
  "grid": ["blocks"], "block": "512", "workspace": "16", "zeros": "16",
  "mapping": "a thread takes every (512 * blocks)-th 16-byte vector of k and of v", "rank": 10
} */
/* The workspace holds the number of blocks that are done and their sum; the last block leaves both at zero. */
#ifndef ADV_UNROLL
#define ADV_UNROLL 4
#endif
#define THREADS 512
#define FULL 0xffffffffu

struct __align__(16) Vec { unsigned x, y, z, w; };

__device__ __forceinline__ Vec load(const Vec *p) {
  Vec r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}

__device__ __forceinline__ unsigned words(const Vec &a) { return a.x + a.y + a.z + a.w; }

/* The threads' sums as one, in thread 0. */
__device__ unsigned total(unsigned sum) {
  __shared__ unsigned of_warp[THREADS / 32];
#pragma unroll
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  if (threadIdx.x == 0)
    for (int w = 0; w < THREADS / 32; w++) sum += of_warp[w];
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    read_floor(const Vec *k, const Vec *v, float *out, unsigned *workspace, int batch, int heads, int kv_heads,
               int head_dim, int n, int blocks, int vectors) {
  const long long step = (long long)gridDim.x * THREADS;
  long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  unsigned sum = 0;
  for (; i + (ADV_UNROLL - 1) * step < vectors; i += ADV_UNROLL * step) {
    Vec a[ADV_UNROLL], b[ADV_UNROLL];
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) a[u] = load(k + i + u * step);
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) b[u] = load(v + i + u * step);
#pragma unroll
    for (int u = 0; u < ADV_UNROLL; u++) sum += words(a[u]) + words(b[u]);
  }
  for (; i < vectors; i += step) sum += words(load(k + i)) + words(load(v + i));
  sum = total(sum);
  if (threadIdx.x != 0) return;
  atomicAdd(workspace + 1, sum);
  __threadfence();
  if (atomicAdd(workspace, 1u) != gridDim.x - 1) return;
  __threadfence();
  const unsigned all = atomicExch(workspace + 1, 0u);
  workspace[0] = 0;
  out[0] = float(all & 0xffffffu) / 16777216.0f;
}
