/* variant {
  "idea": "one block serves all query heads of a group on the tensor cores, each number cut into two of 16 bits",
  "language": "cuda", "symbol": "decode_batched_mma",
  "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "macros": {"ADV_HD": "head_dim", "ADV_SHARING": "heads // kv_heads"},
  "build_knobs": {"ADV_WARPS": [2, 4, 8], "ADV_TILES": [1, 2], "ADV_AHEAD": [0, 1]},
  "run_knobs": {"blocks": [66, 132, 264, 528, 1056]},
  "defaults": {"ADV_WARPS": 4, "ADV_TILES": 1, "ADV_AHEAD": 1, "blocks": 264},
  "valid": ["ADV_AHEAD == 0 or ADV_TILES == 1", "head_dim == 64 or head_dim == 128", "heads // kv_heads >= 2 and heads // kv_heads <= 8", "(heads // kv_heads) * ADV_WARPS * head_dim <= 5632"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim",
  "writes": "batch * heads * head_dim", "atomics": "splits * batch * kv_heads",
  "derived": {
    "rows": "16 * ADV_WARPS * ADV_TILES",
    "wanted": "max(1, min(blocks // (batch * kv_heads), (n + rows - 1) // rows))",
    "chunk": "((n + wanted - 1) // wanted + rows - 1) // rows * rows",
    "splits": "(n + chunk - 1) // chunk",
    "first": "(4 * batch * kv_heads + 15) // 16 * 16"
  },
  "grid": ["splits", "batch * kv_heads"], "block": "32 * ADV_WARPS",
  "workspace": "first + splits * batch * heads * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "a block takes one split of one head of the cache and all its query heads; a warp takes 16 rows at a time, fragments straight from memory",
  "rank": 5
} */
#include "stream.cuh"
#ifndef ADV_WARPS
#define ADV_WARPS 4
#endif
#ifndef ADV_SHARING
#define ADV_SHARING 1
#endif
#ifndef ADV_AHEAD
#define ADV_AHEAD 1
#endif
#ifndef ADV_TILES
#define ADV_TILES 1
#endif

/* The tensor cores take 16-bit operands and add in float32. A query and a weight are cut into two 16-bit numbers, high
   and low, so that nothing of float32's accuracy is lost that the tolerance would miss: the high parts are rows 0..7 of
   the 16-row operand, the low parts rows 8..15, which up to eight query heads leave free. Fragments come straight from
   global memory: which column of a product is which element of a head is ours to choose, so each lane reads 16 bytes.

   Source: PTX ISA, "Matrix Fragments for mma.m16n8k16": a thread with g = lane / 4, t = lane % 4 holds of A rows g and
   g + 8 at k = 2t, 2t+1, 2t+8, 2t+9, of B column g at the same k, of C rows g, g + 8 at columns 2t, 2t+1. */
constexpr int STEPS = ADV_HD / 16, COLUMNS = ADV_HD / 8, HALVES = ADV_HD / 64, SPAN = 16 * ADV_TILES;
#if ADV_DTYPE == 3
constexpr float LOW = 1.0f; /* bfloat16 has float32's range */
#else
constexpr float LOW = 2048.0f; /* keeps low parts out of float16's subnormal numbers */
#endif

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if ADV_DTYPE == 3
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two numbers as one register of 16-bit parts, x in the lower half: high, and what it leaves. */
__device__ __forceinline__ void cut(float x, float y, unsigned &high, unsigned &low) {
  float hx, hy;
#if ADV_DTYPE == 3
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  hx = __uint_as_float(high << 16);
  hy = __uint_as_float(high & 0xffff0000u);
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(y - hy), "f"(x - hx));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  hx = half_bits((unsigned short)high);
  hy = half_bits((unsigned short)(high >> 16));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"((y - hy) * LOW), "f"((x - hx) * LOW));
#endif
}

__device__ __forceinline__ unsigned word(const Vec &a, int i) { return i == 0 ? a.x : i == 1 ? a.y : i == 2 ? a.z : a.w; }

/* Sixteen rows of keys and values in flight. Keys: lane t of row g (and g + 8) holds elements 8t .. 8t+7 of each 32.
   Values: of rows 2t, 2t+1, 2t+8, 2t+9 lane g holds elements 8g .. 8g+7 of each 64. */
struct Tile {
  Vec k[2][ADV_HD / 32], v[4][HALVES];
};

__device__ __forceinline__ void fetch(Tile &tile, const store *k, const store *v, int base, int end) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; r++)
#pragma unroll
    for (int c = 0; c < ADV_HD / 32; c++)
      tile.k[r][c] = load(k + wide(min(base + r * 8 + g, end - 1)) * ADV_HD + c * 32 + t * 8);
#pragma unroll
  for (int r = 0; r < 4; r++)
#pragma unroll
    for (int c = 0; c < HALVES; c++)
      tile.v[r][c] = load(v + wide(min(base + 2 * t + (r & 1) + (r >> 1) * 8, end - 1)) * ADV_HD + c * 64 + g * 8);
}

struct State {
  unsigned q[STEPS][4];
  float sum[COLUMNS][4], most, total;
};

/* Scores of sixteen rows, then their weighted sum: the running maximum is that of this warp's rows so far. */
__device__ __forceinline__ void attend(State &my, const Tile &tile, int base, int end) {
  const int t = threadIdx.x % 4;
  float s[2][4] = {};
#pragma unroll
  for (int r = 0; r < 2; r++)
#pragma unroll
    for (int i = 0; i < STEPS; i++)
      multiply(s[r], my.q[i], word(tile.k[r][i / 2], i % 2 * 2), word(tile.k[r][i / 2], i % 2 * 2 + 1));
  float p[4], most = my.most;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    p[i] = s[i / 2][i % 2] + s[i / 2][i % 2 + 2] * (1.0f / LOW);
    if (base + i / 2 * 8 + 2 * t + i % 2 >= end) p[i] = LOWEST;
    most = max(most, p[i]);
  }
  most = max(most, __shfl_xor_sync(FULL, most, 1));
  most = max(most, __shfl_xor_sync(FULL, most, 2));
  const float shrink = ex2(my.most - most);
  my.most = most;
  my.total *= shrink;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    p[i] = p[i] == LOWEST ? 0.0f : ex2(p[i] - most);
    my.total += p[i];
  }
  unsigned a[4];
  cut(p[0], p[1], a[0], a[1]);
  cut(p[2], p[3], a[2], a[3]);
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) my.sum[j][i] *= shrink;
    const unsigned pick = j % 2 ? 0x7632 : 0x5410;
    const int c = j / 8, w = j % 8 / 2;
    const unsigned b0 = __byte_perm(word(tile.v[0][c], w), word(tile.v[1][c], w), pick);
    const unsigned b1 = __byte_perm(word(tile.v[2][c], w), word(tile.v[3][c], w), pick);
    multiply(my.sum[j], a, b0, b1);
  }
}

__device__ __forceinline__ void begin(State &my, const real *q) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const float scale = score_scale();
#pragma unroll
  for (int i = 0; i < STEPS; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int e = i / 2 * 32 + t * 8 + i % 2 * 4 + j * 2;
      const float x = g < ADV_SHARING ? q[g * ADV_HD + e] * scale : 0.0f;
      const float y = g < ADV_SHARING ? q[g * ADV_HD + e + 1] * scale : 0.0f;
      cut(x, y, my.q[i][j * 2], my.q[i][j * 2 + 1]);
    }
  my.most = LOWEST;
  my.total = 0;
#pragma unroll
  for (int j = 0; j < COLUMNS; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) my.sum[j][i] = 0;
}

/* All warps' results become the partial result of a split; of the only split, the output. */
__device__ __forceinline__ void join_warps(State &my, Partial<ADV_SHARING> part, int split, int splits, real *out) {
  __shared__ float sums[ADV_WARPS][ADV_SHARING][ADV_HD], stats[ADV_WARPS][ADV_SHARING][2];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  my.total += __shfl_xor_sync(FULL, my.total, 1);
  my.total += __shfl_xor_sync(FULL, my.total, 2);
  if (g < ADV_SHARING) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int i = 0; i < 2; i++) /* column 2t + i of product j is element ((2t+i) * 8 + j % 8) of its 64 */
        sums[warp][g][j / 8 * 64 + (2 * t + i) * 8 + j % 8] = my.sum[j][i] + my.sum[j][i + 2] * (1.0f / LOW);
    if (t == 0) {
      stats[warp][g][0] = my.most;
      stats[warp][g][1] = my.total;
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < ADV_SHARING * ADV_HD; e += ADV_WARPS * 32) {
    const int h = e / ADV_HD;
    float most = LOWEST, a = 0, total = 0;
    for (int w = 0; w < ADV_WARPS; w++) most = max(most, stats[w][h][0]);
    for (int w = 0; w < ADV_WARPS; w++) {
      const float f = ex2(stats[w][h][0] - most);
      a += f * sums[w][h][e % ADV_HD];
      total += f * stats[w][h][1];
    }
    if (splits == 1) {
      out[e] = a / total;
      continue;
    }
    part.sums[wide(split) * ADV_SHARING * ADV_HD + e] = a;
    if (e % ADV_HD == 0) {
      part.stats[(split * ADV_SHARING + h) * 2] = most;
      part.stats[(split * ADV_SHARING + h) * 2 + 1] = total;
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * ADV_WARPS)
    decode_batched_mma(const real *q, const store *k, const store *v, real *out, unsigned char *workspace, int batch, int heads,
       int kv_heads, int head_dim, int n, int blocks, int rows, int wanted, int chunk, int splits, int first) {
  const int group = blockIdx.y, warp = threadIdx.x / 32;
  const wide cache = wide(group) * n * ADV_HD;
  const Partial<ADV_SHARING> part(workspace, first, group, splits);
  const int start = blockIdx.x * chunk, end = min(n, start + chunk);
  Tile tiles[ADV_TILES];
#if ADV_AHEAD /* before the queries are waited for */
  fetch(tiles[0], k + cache, v + cache, start + warp * SPAN, end);
#endif
  State my;
  begin(my, q + wide(group) * ADV_SHARING * ADV_HD);
  for (int base = start + warp * SPAN; base < end; base += ADV_WARPS * SPAN) {
#if ADV_AHEAD /* the next sixteen rows are on their way while these are worked on; past the end the last row comes again */
    Tile next;
    fetch(next, k + cache, v + cache, base + ADV_WARPS * SPAN, end);
    attend(my, tiles[0], base, end);
    tiles[0] = next;
#else
#pragma unroll
    for (int i = 0; i < ADV_TILES; i++) fetch(tiles[i], k + cache, v + cache, base + i * 16, end);
#pragma unroll
    for (int i = 0; i < ADV_TILES; i++) attend(my, tiles[i], base + i * 16, end);
#endif
  }
  real *mine = out + wide(group) * ADV_SHARING * ADV_HD;
  join_warps(my, part, blockIdx.x, splits, mine);
  if (splits > 1) finish<ADV_SHARING, ADV_WARPS>(part, (unsigned *)workspace + group, splits, mine);
}
