/* Forward on tensor cores: a warp has 16 rows of a tile, and of every product 8 columns at a time. Lane 4 g + t holds of
   them rows g and g + 8, columns 2 t and 2 t + 1. Weights never leave the registers.

   Included after what says how products are made of tiles in shared memory:
     KEYED, VALUED       length of a row of q and k, of v in shared memory
     query(q)            what a warp keeps of its 16 rows of q
     score(s, x, q, k)   s [BN / 8][4]: products of those rows, kept as x, with BN rows of k
     add(sum, s, v)      sum [HD / 8][4] += products of weights s with BN rows of v */

#define UNSEEN real(__uint_as_float(0xff800000u))
constexpr int WARPS = BM / 16, THREADS = 32 * WARPS;

struct Mine {
  real sum[ADV_HD / 8][4], most[2], total[2];
};

__device__ __forceinline__ void clear(Mine &my) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    my.most[h] = LOWEST;
    my.total[h] = 0;
  }
#pragma unroll
  for (int c = 0; c < ADV_HD / 8; c++)
#pragma unroll
    for (int e = 0; e < 4; e++) my.sum[c][e] = 0;
}

/* Scores of keys that a row does not see. `seen`: how many of the tile row g sees, and row g + 8 sees `step` * 8 more.
   They are minus infinity, not LOWEST: the first tile of a split may hold none that a row sees, and LOWEST * scale minus
   itself rounded is no 0. The largest so far stays LOWEST then, so that no infinity is taken from another. */
__device__ __forceinline__ void mask(real (&s)[BN / 8][4], int seen, int step) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < BN / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (8 * j + 2 * t + e % 2 >= seen + e / 2 * 8 * step) s[j][e] = UNSEEN;
}

/* Scores become weights; what was summed shrinks where a larger score came. */
__device__ __forceinline__ void weigh(Mine &my, real (&s)[BN / 8][4]) {
  const real scale = base_two_scale();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    real top = s[0][2 * h];
#pragma unroll
    for (int j = 0; j < BN / 8; j++) top = max(top, max(s[j][2 * h], s[j][2 * h + 1]));
    top = max(top, __shfl_xor_sync(FULL, top, 1));
    top = max(top, __shfl_xor_sync(FULL, top, 2));
    const real most = max(my.most[h], top * scale), shrink = ex2(my.most[h] - most);
    my.most[h] = most;
    real total = 0;
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
#pragma unroll
      for (int e = 2 * h; e < 2 * h + 2; e++) {
        s[j][e] = ex2(fma(s[j][e], scale, -most));
        total += s[j][e];
      }
    my.total[h] = my.total[h] * shrink + total;
#pragma unroll
    for (int c = 0; c < ADV_HD / 8; c++) {
      my.sum[c][2 * h] *= shrink;
      my.sum[c][2 * h + 1] *= shrink;
    }
  }
}

/* All tiles of keys of a split. The next keys are copied beside the second product, the next rows of v beside the first.
   k, v: [n][HD] of this head; the first tile is on its way. `row`: the tile's first. */
__device__ __forceinline__ void walk(Mine &my, const store *q_tile, store *k_tile, store *v_tile, const store *k,
                                     const store *v, int row, int n, int causal, Span span) {
  const int own = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4;
  wait_all_but_one();
  __syncthreads();
  const Query mine = query(q_tile + own * KEYED);
  for (int t = span.begin; t < span.stop; t++) {
    real s[BN / 8][4];
    wait_all_but_one();
    __syncthreads();
    score(s, mine, q_tile + own * KEYED, k_tile);
    __syncthreads();
    if (t + 1 < span.stop) copy_rows<BN, KEYED, THREADS>(k_tile, k, (t + 1) * BN, n);
    commit();
    if (causal && (t + 1) * BN > row + own)
      mask(s, min(n, row + own + g + 1) - t * BN, 1); /* rows past n see more than there is: never written */
    else if ((t + 1) * BN > n)
      mask(s, n - t * BN, 0);
    weigh(my, s);
    wait_all_but_one();
    __syncthreads();
    add(my.sum, s, v_tile);
    __syncthreads();
    if (t + 1 < span.stop) copy_rows<BN, VALUED, THREADS>(v_tile, v, (t + 1) * BN, n);
    commit();
  }
}

/* The rows of a tile that exist, as the result or as the partial result of a split. */
__device__ __forceinline__ void emit(const Mine &my, store *out, const Splits<BM> &parts, int split, int rows) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int i = threadIdx.x / 32 * 16 + g + 8 * h;
    real total = my.total[h];
    total += __shfl_xor_sync(FULL, total, 1);
    total += __shfl_xor_sync(FULL, total, 2);
    if (i >= rows) continue;
    if (parts.filled == 1) {
      const real by = 1 / total;
#pragma unroll
      for (int c = 0; c < ADV_HD / 8; c++)
        put(out + wide(i) * ADV_HD + 8 * c + 2 * t, my.sum[c][2 * h] * by, my.sum[c][2 * h + 1] * by);
      continue;
    }
    real *to = parts.sums + (wide(split) * BM + i) * ADV_HD;
#pragma unroll
    for (int c = 0; c < ADV_HD / 8; c++) put(to + 8 * c + 2 * t, my.sum[c][2 * h], my.sum[c][2 * h + 1]);
    if (t == 0) {
      parts.stats[(split * BM + i) * 2] = my.most[h];
      parts.stats[(split * BM + i) * 2 + 1] = total;
    }
  }
}

/* A block: a tile of rows of head blockIdx.y, split blockIdx.z of its keys. `space`: shared memory. */
__device__ __forceinline__ void attend(store *space, FORWARD_ARGUMENTS, int splits, int tiles, int first) {
  store *q_tile = space, *k_tile = q_tile + BM * KEYED, *v_tile = k_tile + BN * KEYED;
  const int head = blockIdx.y, split = blockIdx.z, place = gridDim.x - 1 - blockIdx.x; /* causal: the longest first */
  const int row = place * BM;
  const wide start = wide(head) * n * ADV_HD, cache = keys_of(head, heads, kv_heads, n) * ADV_HD;
  const Span span = span_of(row + BM, n, causal, BN, split, splits);
  if (span.begin == span.stop) return;
  copy_rows<BM, KEYED, THREADS>(q_tile, q + start, row, n);
  copy_rows<BN, KEYED, THREADS>(k_tile, k + cache, span.begin * BN, n);
  commit();
  copy_rows<BN, VALUED, THREADS>(v_tile, v + cache, span.begin * BN, n);
  commit();
  Mine my;
  clear(my);
  walk(my, q_tile, k_tile, v_tile, k + cache, v + cache, row, n, causal, span);
  const Splits<BM> parts(workspace, first, head * gridDim.x + place, tiles, splits, span.filled);
  store *mine = out + start + wide(row) * ADV_HD;
  emit(my, mine, parts, split, min(BM, n - row));
  if (span.filled > 1) merge<BM, THREADS>(parts, mine, min(BM, n - row));
}
