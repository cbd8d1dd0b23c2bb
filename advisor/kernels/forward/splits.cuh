/* Splits of the keys of forward: what each takes, and the merge of what they found by the block that comes last.

   Included after what says `real`, `store`, `wide`, ADV_HD, VEC (numbers of 16 bytes), ex2, LOWEST, and
   how `put` writes two numbers of 16 bits. */
#if ADV_DTYPE == 1
typedef double2 Pack;
typedef double2 Pair;
__device__ __forceinline__ real part(const Pack &a, int e) { return e ? a.y : a.x; }
__device__ __forceinline__ Pack pack(const real *a) { return make_double2(a[0], a[1]); }
__device__ __forceinline__ void put(real *to, real x, real y) { *(Pair *)to = make_double2(x, y); }
#else
typedef float4 Pack;
typedef float2 Pair;
__device__ __forceinline__ real part(const Pack &a, int e) { return e == 0 ? a.x : e == 1 ? a.y : e == 2 ? a.z : a.w; }
__device__ __forceinline__ Pack pack(const real *a) { return make_float4(a[0], a[1], a[2], a[3]); }
__device__ __forceinline__ void put(real *to, real x, real y) { *(Pair *)to = make_float2(x, y); }
#endif

constexpr int PACKS = ADV_HD / VEC; /* of a row */

/* Tiles of `size` keys that the rows before `end` see, from `begin` to `stop` for this split. `filled`: how many splits have
   any, the first ones; tiles need not divide well, and causal the first rows see few. A block of another split ends at
   once, and nobody waits for it. */
struct Span {
  int begin, stop, filled;
};

__device__ __forceinline__ Span span_of(int end, int n, int causal, int size, int split, int splits) {
  const int tiles = ((causal ? min(end, n) : n) + size - 1) / size, share = (tiles + splits - 1) / splits;
  return {min(tiles, split * share), min(tiles, (split + 1) * share), (tiles + share - 1) / share};
}

/* Partial results of the `filled` splits of one tile of rows, with room for all: sums [split][ROWS][HD], then largest
   score and total of each row [split][ROWS][2]. A counter a tile lies before all of them. */
template <int ROWS> struct Splits {
  real *sums, *stats;
  unsigned *counter;
  int filled;
  __device__ Splits(unsigned char *workspace, int first, int tile, int tiles, int splits, int filled_) : filled(filled_) {
    real *all = (real *)(workspace + first);
    sums = all + wide(tile) * splits * ROWS * ADV_HD;
    stats = all + wide(tiles) * splits * ROWS * ADV_HD + wide(tile) * splits * ROWS * 2;
    counter = (unsigned *)workspace + tile;
  }
};

/* The last block of a tile to come here merges its splits, in their order whichever block that is, so that the result
   does not depend on timing. It leaves the counter at zero, as it found it. All threads of the block come. */
template <int ROWS, int THREADS>
__device__ __forceinline__ void merge(const Splits<ROWS> &found, store *out, int rows) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(found.counter, 1u) == unsigned(found.filled - 1);
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int x = threadIdx.x; x < rows * PACKS; x += THREADS) {
    const int r = x / PACKS, c = x % PACKS * VEC;
    real most = LOWEST, total = 0, sum[VEC];
    for (int s = 0; s < found.filled; s++) most = max(most, __ldcg(found.stats + (s * ROWS + r) * 2));
#pragma unroll
    for (int e = 0; e < VEC; e++) sum[e] = 0;
#pragma unroll 4
    for (int s = 0; s < found.filled; s++) {
      const real f = ex2(__ldcg(found.stats + (s * ROWS + r) * 2) - most);
      const Pack one = __ldcg((const Pack *)(found.sums + (s * ROWS + r) * ADV_HD + c));
      total += f * __ldcg(found.stats + (s * ROWS + r) * 2 + 1);
#pragma unroll
      for (int e = 0; e < VEC; e++) sum[e] += f * part(one, e);
    }
#pragma unroll
    for (int e = 0; e < VEC; e += 2) put(out + wide(r) * ADV_HD + c + e, sum[e] / total, sum[e + 1] / total);
  }
  if (threadIdx.x == 0) *found.counter = 0;
}
