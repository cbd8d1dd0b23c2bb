/* Tiles of attention's backward in shared memory, on the CUDA cores, in float32 or float64: what the variants share.

   A block has ADV_ROWS rows of the scores (queries, or keys) and walks the other side ADV_COLS at a time. Of a tile of
   scores a thread has rows ty, ty + DOWN, ... and columns tx, tx + 16, ...; of the sums over a tile the same rows, and
   16 bytes of elements of a head in each 16 packs. So a row of scores is written and read by 16 lanes of one warp.

   No header of CUDA's is included, so that NVRTC needs no include path. Macros of the frame: ADV_DTYPE. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 2
#endif
#ifndef ADV_HD
#define ADV_HD 64
#endif
#ifndef ADV_ROWS
#define ADV_ROWS 64
#endif
#ifndef ADV_COLS
#define ADV_COLS 64
#endif
#ifndef ADV_THREADS
#define ADV_THREADS 128
#endif
#if ADV_DTYPE == 1
typedef double real;
typedef double2 Pack;
__device__ __forceinline__ double ex2(double x) { return exp2(x); }
__device__ __forceinline__ real part(const Pack &a, int i) { return i ? a.y : a.x; }
__device__ __forceinline__ Pack packed(const real *x) { return make_double2(x[0], x[1]); }
#else
typedef float real;
typedef float4 Pack;
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ real part(const Pack &a, int i) { return i == 0 ? a.x : i == 1 ? a.y : i == 2 ? a.z : a.w; }
__device__ __forceinline__ Pack packed(const real *x) { return make_float4(x[0], x[1], x[2], x[3]); }
#endif
typedef long long wide;

#define FULL 0xffffffffu

/* elements of 16 bytes; threads below each other; rows and columns of scores a thread; packs of a head a thread; elements
   between rows of operands, and of scores, in shared memory: one pack more than they have, so that lanes meet no bank twice */
constexpr int PACK = 16 / int(sizeof(real)), DOWN = ADV_THREADS / 16, TALL = ADV_ROWS / DOWN, BROAD = ADV_COLS / 16;
constexpr int DEEP = ADV_HD / PACK / 16, PITCH = ADV_HD + PACK, SCORE_PITCH = ADV_COLS + PACK;
constexpr real LOG2E = real(1.4426950408889634);

/* Pointers of the whole problem; delta [b*h][n]. */
struct Task {
  const real *q, *k, *v, *out, *lse, *gout;
  real *gq, *gk, *gv, *delta;
  int sharing, causal, n;
};

typedef real Scores[TALL][BROAD];
typedef real Sums[TALL][DEEP * PACK];

__device__ __forceinline__ real score_scale() { return real(1) / real(sqrt(double(ADV_HD))); }

/* COUNT rows of [n][HD] from `first` on into shared memory, zeros past the last. */
template <int COUNT> __device__ __forceinline__ void fill(real *to, const real *from, int first, int n) {
  constexpr int PACKS = ADV_HD / PACK;
#pragma unroll 4
  for (int t = threadIdx.x; t < COUNT * PACKS; t += ADV_THREADS) {
    const int row = t / PACKS, at = t % PACKS * PACK;
    Pack x = {};
    if (first + row < n) x = *(const Pack *)(from + wide(first + row) * ADV_HD + at);
    *(Pack *)(to + row * PITCH + at) = x;
  }
}

/* The products of a thread's rows of `rows` and columns of `cols`. */
__device__ __forceinline__ void multiply(Scores &s, const real *rows, const real *cols) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < TALL; r++)
#pragma unroll
    for (int c = 0; c < BROAD; c++) s[r][c] = 0;
#pragma unroll 2
  for (int d = 0; d < ADV_HD; d += PACK) {
    Pack a[TALL], b[BROAD];
#pragma unroll
    for (int r = 0; r < TALL; r++) a[r] = *(const Pack *)(rows + (ty + DOWN * r) * PITCH + d);
#pragma unroll
    for (int c = 0; c < BROAD; c++) b[c] = *(const Pack *)(cols + (tx + 16 * c) * PITCH + d);
#pragma unroll
    for (int r = 0; r < TALL; r++)
#pragma unroll
      for (int c = 0; c < BROAD; c++)
#pragma unroll
        for (int e = 0; e < PACK; e++) s[r][c] = fma(part(a[r], e), part(b[c], e), s[r][c]);
  }
}

/* Adds to the sums of a thread its rows of scores [ROWS][COLS] times `cols` [COLS][HD]. */
__device__ __forceinline__ void add(Sums &sum, const real *scores, const real *cols) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll 2
  for (int c = 0; c < ADV_COLS; c += PACK) {
    Pack a[TALL];
#pragma unroll
    for (int r = 0; r < TALL; r++) a[r] = *(const Pack *)(scores + (ty + DOWN * r) * SCORE_PITCH + c);
#pragma unroll
    for (int e = 0; e < PACK; e++)
#pragma unroll
      for (int h = 0; h < DEEP; h++) {
        const Pack b = *(const Pack *)(cols + (c + e) * PITCH + (h * 16 + tx) * PACK);
#pragma unroll
        for (int r = 0; r < TALL; r++)
#pragma unroll
          for (int i = 0; i < PACK; i++) sum[r][h * PACK + i] = fma(part(a[r], e), part(b, i), sum[r][h * PACK + i]);
      }
  }
}

__device__ __forceinline__ void clear(Sums &sum) {
#pragma unroll
  for (int r = 0; r < TALL; r++)
#pragma unroll
    for (int i = 0; i < DEEP * PACK; i++) sum[r][i] = 0;
}

/* A thread's sums times `scale` into rows [n][HD] from `first` on. */
__device__ __forceinline__ void put(real *to, Sums &sum, real scale, int first, int n) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < TALL; r++) {
    const int row = first + ty + DOWN * r;
    if (row >= n) continue;
#pragma unroll
    for (int i = 0; i < DEEP * PACK; i++) sum[r][i] *= scale;
#pragma unroll
    for (int h = 0; h < DEEP; h++)
      *(Pack *)(to + wide(row) * ADV_HD + (h * 16 + tx) * PACK) = packed(&sum[r][h * PACK]);
  }
}

/* P[i,j] and GS[i,j] of one pair from its products s and x; lse in base 2. Zero where row i does not see row j. */
__device__ __forceinline__ void weigh(const Task &c, int i, int j, real lse, real delta, real &s, real &x) {
  const bool seen = i < c.n && j < c.n && (!c.causal || j <= i);
  s = seen ? ex2(fma(s, score_scale() * LOG2E, -lse)) : real(0);
  x = s * (x - delta);
}

__device__ __forceinline__ void show(real *to, const Scores &s) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < TALL; r++)
#pragma unroll
    for (int c = 0; c < BROAD; c++) to[(ty + DOWN * r) * SCORE_PITCH + tx + 16 * c] = s[r][c];
}

/* delta of a thread's rows: gout in shared memory times out, summed by 16 lanes. */
__device__ __forceinline__ void delta_of(real (&delta)[TALL], const real *gout, const real *out, int first, int n) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < TALL; r++) {
    const int row = ty + DOWN * r;
    real sum = 0;
    if (first + row < n)
#pragma unroll
      for (int h = 0; h < DEEP; h++) {
        const Pack a = *(const Pack *)(gout + row * PITCH + (h * 16 + tx) * PACK);
        const Pack b = *(const Pack *)(out + wide(first + row) * ADV_HD + (h * 16 + tx) * PACK);
#pragma unroll
        for (int e = 0; e < PACK; e++) sum = fma(part(a, e), part(b, e), sum);
      }
#pragma unroll
    for (int o = 8; o; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
    delta[r] = sum;
  }
}

/* gq of ADV_ROWS query rows of head blockIdx.y, and delta of them for `key_tile`. Causal: the longest first. */
__device__ __forceinline__ void query_tile(const Task &c, real *space) {
  real *q = space, *gout = q + ADV_ROWS * PITCH, *k = gout + ADV_ROWS * PITCH, *v = k + ADV_COLS * PITCH;
  real *scores = v + ADV_COLS * PITCH;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, h = blockIdx.y;
  const int first = (c.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ADV_ROWS;
  const int end = c.causal ? min(c.n, first + ADV_ROWS) : c.n;
  const wide head = wide(h) * c.n, cache = wide(h / c.sharing) * c.n * ADV_HD;
  fill<ADV_ROWS>(q, c.q + head * ADV_HD, first, c.n);
  fill<ADV_ROWS>(gout, c.gout + head * ADV_HD, first, c.n);
  __syncthreads();
  real delta[TALL], lse[TALL];
  delta_of(delta, gout, c.out + head * ADV_HD, first, c.n);
#pragma unroll
  for (int r = 0; r < TALL; r++) {
    const int row = first + ty + DOWN * r;
    lse[r] = row < c.n ? c.lse[head + row] * LOG2E : real(0);
    if (row < c.n && tx == 0) c.delta[head + row] = delta[r];
  }
  Sums sum;
  clear(sum);
  for (int start = 0; start < end; start += ADV_COLS) {
    __syncthreads();
    fill<ADV_COLS>(k, c.k + cache, start, c.n);
    fill<ADV_COLS>(v, c.v + cache, start, c.n);
    __syncthreads();
    Scores s, x;
    multiply(s, q, k);
    multiply(x, gout, v);
#pragma unroll
    for (int r = 0; r < TALL; r++)
#pragma unroll
      for (int col = 0; col < BROAD; col++)
        weigh(c, first + ty + DOWN * r, start + tx + 16 * col, lse[r], delta[r], s[r][col], x[r][col]);
    show(scores, x);
    __syncwarp();
    add(sum, scores, k);
  }
  put(c.gq + head * ADV_HD, sum, score_scale(), first, c.n);
}

/* gk and gv of ADV_ROWS key rows of the head blockIdx.y of k and v, over all query heads that share it. */
__device__ __forceinline__ void key_tile(const Task &c, real *space) {
  real *k = space, *v = k + ADV_ROWS * PITCH, *q = v + ADV_ROWS * PITCH, *gout = q + ADV_COLS * PITCH;
  real *weights = gout + ADV_COLS * PITCH, *scores = weights + ADV_ROWS * SCORE_PITCH;
  real *lse = scores + ADV_ROWS * SCORE_PITCH, *delta = lse + ADV_COLS;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, g = blockIdx.y, first = blockIdx.x * ADV_ROWS;
  const wide cache = wide(g) * c.n * ADV_HD;
  fill<ADV_ROWS>(k, c.k + cache, first, c.n);
  fill<ADV_ROWS>(v, c.v + cache, first, c.n);
  Sums of_k, of_v;
  clear(of_k);
  clear(of_v);
  for (int h = g * c.sharing; h < (g + 1) * c.sharing; h++) {
    const wide head = wide(h) * c.n;
    for (int start = c.causal ? first / ADV_COLS * ADV_COLS : 0; start < c.n; start += ADV_COLS) {
      __syncthreads();
      fill<ADV_COLS>(q, c.q + head * ADV_HD, start, c.n);
      fill<ADV_COLS>(gout, c.gout + head * ADV_HD, start, c.n);
      for (int i = threadIdx.x; i < ADV_COLS; i += ADV_THREADS) {
        lse[i] = start + i < c.n ? c.lse[head + start + i] * LOG2E : real(0);
        delta[i] = start + i < c.n ? c.delta[head + start + i] : real(0);
      }
      __syncthreads();
      Scores s, x;
      multiply(s, k, q);
      multiply(x, v, gout);
#pragma unroll
      for (int r = 0; r < TALL; r++)
#pragma unroll
        for (int col = 0; col < BROAD; col++) {
          const int at = tx + 16 * col;
          weigh(c, start + at, first + ty + DOWN * r, lse[at], delta[at], s[r][col], x[r][col]);
        }
      show(weights, s);
      show(scores, x);
      __syncwarp();
      add(of_v, weights, gout);
      add(of_k, scores, q);
    }
  }
  put(c.gk + cache, of_k, score_scale(), first, c.n);
  put(c.gv + cache, of_v, real(1), first, c.n);
}
