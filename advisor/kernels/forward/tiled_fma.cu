/* variant {
  "idea": "tiles of rows and keys in shared memory, products on the CUDA cores, a running softmax; keys split if rows are few",
  "language": "cuda", "symbol": "forward_tiled_fma", "dtypes": ["float32", "float64"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim"},
  "build_knobs": {"ADV_BM": [16, 32, 64, 128], "ADV_BN": [32, 64]}, "run_knobs": {"splits": [1, 2, 4, 8, 16]},
  "defaults": {"ADV_BM": 64, "ADV_BN": 64, "splits": 4},
  "valid": ["head_dim == 64 or head_dim == 128",
            "item_bytes * ((ADV_BM + 2 * ADV_BN) * (head_dim + 4) + ADV_BM * (ADV_BN + 4)) <= 227 * 1024", "ADV_BM < max(32, 2 * n)", "ADV_BN < max(64, 2 * n)",
            "splits == 1 or splits * ADV_BN < n + ADV_BN",
            "splits == 1 or splits * ((n + ADV_BM - 1) // ADV_BM) * batch * heads <= 1056",
            "ADV_BM >= 64 or ((n + 63) // 64) * batch * heads <= 132"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "atomics": "(splits > 1) * splits * tiles",
  "derived": {
    "tiles": "(n + ADV_BM - 1) // ADV_BM * batch * heads",
    "first": "(splits > 1) * ((4 * tiles + 15) // 16 * 16)"
  },
  "grid": ["(n + ADV_BM - 1) // ADV_BM", "batch * heads", "splits"], "block": "max(128, 2 * ADV_BM)",
  "shared": "real_bytes * ((ADV_BM + 2 * ADV_BN) * (head_dim + 16 // real_bytes) + ADV_BM * (ADV_BN + 16 // real_bytes))",
  "workspace": "first + (splits > 1) * tiles * splits * ADV_BM * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "tiled: a block takes a tile of query rows and a split of the keys, 16 lanes across keys, then across the result",
  "rank": 20
} */
#include "tiles.cuh"
#ifndef ADV_BM
#define ADV_BM 64
#endif
#ifndef ADV_BN
#define ADV_BN 64
#endif

/* Of BM rows and BN keys a thread has TALL x ACROSS scores: rows SIDE apart, keys 16 apart. Of the result it has the same
   rows, DEEP packs 16 packs apart. Rows of shared memory are a pack longer than they are. */
constexpr int BM = ADV_BM, BN = ADV_BN, THREADS = BM > 64 ? 2 * BM : 128, SIDE = THREADS / 16, TALL = BM / SIDE;
constexpr int ACROSS = BN / 16, DEEP = PACKS / 16, STRIDE = ADV_HD + VEC, LINE = BN + VEC;

struct Tile {
  real *q, *k, *v, *p;
};

struct Mine {
  real sum[TALL][DEEP * VEC], most[TALL], total[TALL];
};

__device__ __forceinline__ void clear(Mine &my) {
#pragma unroll
  for (int r = 0; r < TALL; r++) {
    my.most[r] = LOWEST;
    my.total[r] = 0;
#pragma unroll
    for (int c = 0; c < DEEP * VEC; c++) my.sum[r][c] = 0;
  }
}

__device__ __forceinline__ void score(real (&s)[TALL][ACROSS], const Tile &at, int x, int y) {
#pragma unroll
  for (int r = 0; r < TALL; r++)
#pragma unroll
    for (int c = 0; c < ACROSS; c++) s[r][c] = 0;
#pragma unroll 4
  for (int d = 0; d < ADV_HD; d += VEC) {
    Pack a[TALL], b[ACROSS];
#pragma unroll
    for (int r = 0; r < TALL; r++) a[r] = *(const Pack *)&at.q[(y + SIDE * r) * STRIDE + d];
#pragma unroll
    for (int c = 0; c < ACROSS; c++) b[c] = *(const Pack *)&at.k[(x + 16 * c) * STRIDE + d];
#pragma unroll
    for (int e = 0; e < VEC; e++)
#pragma unroll
      for (int r = 0; r < TALL; r++)
#pragma unroll
        for (int c = 0; c < ACROSS; c++) s[r][c] = fma(part(a[r], e), part(b[c], e), s[r][c]);
  }
}

/* Scores become weights in shared memory. `seen`: how many keys of the tile row y sees; each row below sees `step` more
   for every row that it is lower. */
__device__ __forceinline__ void weigh(Mine &my, real (&s)[TALL][ACROSS], const Tile &at, int x, int y, int seen, int step) {
  const real scale = base_two_scale();
#pragma unroll
  for (int r = 0; r < TALL; r++) {
    real most = my.most[r];
#pragma unroll
    for (int c = 0; c < ACROSS; c++) {
      s[r][c] = x + 16 * c < seen + step * SIDE * r ? s[r][c] * scale : LOWEST;
      most = max(most, s[r][c]);
    }
#pragma unroll
    for (int o = 8; o; o >>= 1) most = max(most, __shfl_xor_sync(FULL, most, o));
    const real shrink = ex2(my.most[r] - most);
    my.most[r] = most;
    my.total[r] *= shrink;
#pragma unroll
    for (int c = 0; c < ACROSS; c++) {
      const real e = ex2(s[r][c] - most);
      my.total[r] += e;
      at.p[(y + SIDE * r) * LINE + x + 16 * c] = e;
    }
#pragma unroll
    for (int c = 0; c < DEEP * VEC; c++) my.sum[r][c] *= shrink;
  }
}

__device__ __forceinline__ void add(Mine &my, const Tile &at, int x, int y) {
#pragma unroll 4
  for (int j = 0; j < BN; j += VEC) {
    Pack w[TALL];
#pragma unroll
    for (int r = 0; r < TALL; r++) w[r] = *(const Pack *)&at.p[(y + SIDE * r) * LINE + j];
#pragma unroll
    for (int e = 0; e < VEC; e++)
#pragma unroll
      for (int c = 0; c < DEEP; c++) {
        const Pack b = *(const Pack *)&at.v[(j + e) * STRIDE + (c * 16 + x) * VEC];
#pragma unroll
        for (int r = 0; r < TALL; r++)
#pragma unroll
          for (int f = 0; f < VEC; f++) my.sum[r][c * VEC + f] = fma(part(w[r], e), part(b, f), my.sum[r][c * VEC + f]);
      }
  }
}

/* All tiles of keys of a split. Copies of the next keys run beside the second product, of the next rows of v beside the
   first. k, v: [n][HD] of this head; the first tile is on its way. */
__device__ __forceinline__ void walk(Mine &my, const Tile &at, const real *k, const real *v, int row, int n, int causal,
                                     Span span) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (int t = span.begin; t < span.stop; t++) {
    real s[TALL][ACROSS];
    wait_all_but_one();
    __syncthreads();
    score(s, at, x, y);
    __syncthreads();
    if (t + 1 < span.stop) copy_rows<BN, STRIDE, THREADS>(at.k, k, (t + 1) * BN, n);
    commit();
    const bool diagonal = causal && (t + 1) * BN > row;
    if (diagonal)
      weigh(my, s, at, x, y, min(n, row + y + 1) - t * BN, 1); /* rows past n see more than there is: never written */
    else
      weigh(my, s, at, x, y, n - t * BN, 0);
    wait_all_but_one();
    __syncthreads();
    add(my, at, x, y);
    __syncthreads();
    if (t + 1 < span.stop) copy_rows<BN, STRIDE, THREADS>(at.v, v, (t + 1) * BN, n);
    commit();
  }
}

/* The rows of a tile that exist, as the result or as the partial result of a split. */
__device__ __forceinline__ void emit(Mine &my, real *out, const Splits<BM> &parts, int split, int rows) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < TALL; r++) {
    const int i = y + SIDE * r;
    real total = my.total[r];
#pragma unroll
    for (int o = 8; o; o >>= 1) total += __shfl_xor_sync(FULL, total, o);
    const real by = parts.filled == 1 ? 1 / total : real(1);
    real *to = parts.filled == 1 ? out + wide(i) * ADV_HD : parts.sums + (wide(split) * BM + i) * ADV_HD;
    if (i >= rows) continue;
#pragma unroll
    for (int c = 0; c < DEEP * VEC; c++) my.sum[r][c] *= by;
#pragma unroll
    for (int c = 0; c < DEEP; c++) *(Pack *)(to + (c * 16 + x) * VEC) = pack(my.sum[r] + c * VEC);
    if (parts.filled > 1 && x == 0) {
      parts.stats[(split * BM + i) * 2] = my.most[r];
      parts.stats[(split * BM + i) * 2 + 1] = total;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    forward_tiled_fma(FORWARD_ARGUMENTS, int splits, int tiles, int first) {
  extern __shared__ __align__(16) real space[];
  const Tile at = {space, space + BM * STRIDE, space + (BM + BN) * STRIDE, space + (BM + 2 * BN) * STRIDE};
  const int head = blockIdx.y, split = blockIdx.z, place = gridDim.x - 1 - blockIdx.x; /* causal: the longest first */
  const int row = place * BM;
  const wide start = wide(head) * n * ADV_HD, cache = keys_of(head, heads, kv_heads, n) * ADV_HD;
  const Span span = span_of(row + BM, n, causal, BN, split, splits);
  if (span.begin == span.stop) return;
  copy_rows<BM, STRIDE, THREADS>(at.q, q + start, row, n);
  copy_rows<BN, STRIDE, THREADS>(at.k, k + cache, span.begin * BN, n);
  commit();
  copy_rows<BN, STRIDE, THREADS>(at.v, v + cache, span.begin * BN, n);
  commit();
  Mine my;
  clear(my);
  walk(my, at, k + cache, v + cache, row, n, causal, span);
  const Splits<BM> parts(workspace, first, head * gridDim.x + place, tiles, splits, span.filled);
  real *mine = out + start + wide(row) * ADV_HD;
  emit(my, mine, parts, split, min(BM, n - row));
  if (span.filled > 1) merge<BM, THREADS>(parts, mine, min(BM, n - row));
}
