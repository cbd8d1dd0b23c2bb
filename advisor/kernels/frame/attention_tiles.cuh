/* What forward and gradients of attention by tiles on the tensor cores share. */
#include "tensor_tiles.cuh"

__device__ __forceinline__ real score_scale() { return real(1 / sqrt(double(HD))); }

/* The sum over the four lanes of a row. */
__device__ __forceinline__ real row_sum(real x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* The block's query rows, or rows of k and v, of `head`; those of this warp. */
struct Place {
  wide head;
  int first, mine;
};

/* Causal: the long ones first. COUNT tiles of sixteen rows a block, SHARING warps on each. */
template <int COUNT = TILES, int SHARING = SPLITS> __device__ __forceinline__ Place query_place(int causal) {
  const int first = int(causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * 16 * COUNT;
  return {wide(blockIdx.y), first, first + own_tile<SHARING>() * 16};
}
__device__ __forceinline__ Place column_place() {
  const int first = int(blockIdx.x) * OWN;
  return {wide(blockIdx.y), first, first + own_tile() * 16};
}
