/* Tiles of attention on the tensor cores: a warp owns sixteen rows, others stream by through shared memory.

   float64 goes to the tensor cores as it is; a float32 is cut into a high and a low part of tf32, and three of the four
   products of parts are added up, so that float32's accuracy is kept. What is in registers is in the layout of a
   product's result, which with a suitable order of the inner index is that of a left operand as well: weights never
   leave registers between two products.

   Source: PTX ISA, "Matrix Fragments for mma.m16n8k8": a thread with g = lane / 4, t = lane % 4 holds of the left
   operand rows g and g + 8 at inner index t, then t + 4, of the right one column g at the same, of the result rows g,
   g + 8 at columns 2t, 2t + 1. Which number of the problem an inner index is, is ours to choose. */
#ifndef ADV_DTYPE
#define ADV_DTYPE 1
#endif
#ifndef ADV_HD
#define ADV_HD 64
#endif
#ifndef ADV_TILES
#define ADV_TILES 2
#endif
#ifndef ADV_SPLITS
#define ADV_SPLITS 2
#endif
#ifndef ADV_STEP
#define ADV_STEP 32
#endif
#ifndef ADV_STAGES
#define ADV_STAGES 1
#endif

#if ADV_DTYPE == 1
typedef double real;
#else
typedef float real;
#endif
typedef long long wide;
constexpr int HD = ADV_HD;
constexpr real LOG2E = real(1.4426950408889634), NEVER = real(1e30);

/* Tiles of sixteen rows that a block owns; warps on each of them, which take rows that stream by in turn; rows a warp
   takes at a time; tiles in flight or at work. */
constexpr int TILES = ADV_TILES, SPLITS = ADV_SPLITS, STEP = ADV_STEP, STAGES = ADV_STAGES;
constexpr int TEAM = 32 * TILES * SPLITS, OWN = 16 * TILES, ROUND = SPLITS * STEP;

/* Numbers of 16 bytes; a row in shared memory: so padded, warps that read fragments meet no bank twice. */
constexpr int VEC = 16 / int(sizeof(real)), LD = HD + VEC;

/* Numbers of one operand that stream by at a time. */
constexpr int STREAM = ROUND * LD;
extern __shared__ __align__(16) real lines[];

/* --- products --- */

#if ADV_DTYPE == 1
struct Left { double x[4]; };
struct Right { double x[2]; };

__device__ __forceinline__ Left left(double a, double b, double c, double d) { return {{a, b, c, d}}; }
__device__ __forceinline__ Right right(double a, double b) { return {{a, b}}; }

__device__ __forceinline__ void multiply(double (&c)[4], const Left &a, const Right &b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a.x[0]), "d"(a.x[1]), "d"(a.x[2]), "d"(a.x[3]), "d"(b.x[0]), "d"(b.x[1]));
}

/* Quarter s of sixteen inner indices: the four of a warp that lie so that rows LD apart meet no bank twice. */
__device__ __forceinline__ int inner(int t, int s) { return t % 2 + t / 2 * 8 + 2 * s; }
/* 2**x for x up to 1000: the library's function takes three times as many instructions, most of them for other x. Below
   -1000 what is returned is 2**-1000. The polynomial is a Chebyshev fit of 2**f on [-1/2, 1/2], wrong by 3.2e-18
   there; evaluated in float64 it is within 1.3 units of roundoff. */
__device__ __forceinline__ double ex2(double x) {
  constexpr double LEAST = -1000, SHIFT = 6755399441055744.0; /* 1.5 * 2**52: adding it rounds to a whole number */
  if (unsigned(__double_as_longlong(x) >> 32) > 0xc08f4000u) x = LEAST; /* sign and exponent of -1000 */
  const double shifted = x + SHIFT, f = x - (shifted - SHIFT);
  double p = 4.4558179083360645e-10;
  p = fma(p, f, 7.074194297288521e-09);
  p = fma(p, f, 1.0178057087733941e-07);
  p = fma(p, f, 1.3215432535912375e-06);
  p = fma(p, f, 1.5252733841556773e-05);
  p = fma(p, f, 0.00015403530463724353);
  p = fma(p, f, 0.001333355814640647);
  p = fma(p, f, 0.009618129107587256);
  p = fma(p, f, 0.055504108664821625);
  p = fma(p, f, 0.24022650695910158);
  p = fma(p, f, 0.6931471805599453);
  p = fma(p, f, 1.0);
  return __longlong_as_double(__double_as_longlong(p) + (__double_as_longlong(shifted) << 52));
}
#else
struct Left { unsigned high[4], low[4]; };
struct Right { unsigned high[2], low[2]; };

/* The eleven leading bits of a number, and what they leave. */
__device__ __forceinline__ void cut(float x, unsigned &high, unsigned &low) {
  high = __float_as_uint(x) & 0xffffe000u;
  low = __float_as_uint(x - __uint_as_float(high));
}
__device__ __forceinline__ Left left(float a, float b, float c, float d) {
  Left made;
  cut(a, made.high[0], made.low[0]);
  cut(b, made.high[1], made.low[1]);
  cut(c, made.high[2], made.low[2]);
  cut(d, made.high[3], made.low[3]);
  return made;
}
__device__ __forceinline__ Right right(float a, float b) {
  Right made;
  cut(a, made.high[0], made.low[0]);
  cut(b, made.high[1], made.low[1]);
  return made;
}

__device__ __forceinline__ void multiply_parts(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply(float (&c)[4], const Left &a, const Right &b) {
  multiply_parts(c, a.low, b.high);
  multiply_parts(c, a.high, b.low);
  multiply_parts(c, a.high, b.high);
}

__device__ __forceinline__ int inner(int t, int s) { return t + 4 * s; }
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

/* Of a lane: its row in a tile of eight rows, its pair of columns in one of eight columns. */
__device__ __forceinline__ int lane_row() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int lane_pair() { return threadIdx.x % 4; }

/* Sixteen rows by N columns over a warp; element e of c[j]: row lane_row() + e / 2 * 8, column j * 8 + see column_in_tile. */
template <int N> struct Sum { real c[N / 8][4]; };

__device__ __forceinline__ int row_in_tile(int e) { return lane_row() + e / 2 * 8; }
__device__ __forceinline__ int column_in_tile(int j, int e) { return j * 8 + 2 * lane_pair() + e % 2; }

/* do(element, row, column) for all of a lane's elements. */
template <int N, typename Do> __device__ __forceinline__ void each(Sum<N> &sum, Do work) {
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) work(sum.c[j][e], row_in_tile(e), column_in_tile(j, e));
}

template <int N> __device__ __forceinline__ void zero(Sum<N> &sum) {
  each(sum, [](real &x, int, int) { x = 0; });
}

/* x y': products of sixteen rows x [.][LD] with N rows y [.][LD], both in shared memory. */
template <int N> __device__ __forceinline__ void products(Sum<N> &sum, const real *x, const real *y) {
  const int g = lane_row(), t = lane_pair();
  zero(sum);
  x += g * LD;
  y += g * LD;
#pragma unroll 2
  for (int k = 0; k < HD; k += 16)
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const int a = k + inner(t, s), b = k + inner(t, s + 1);
      const Left l = left(x[a], x[8 * LD + a], x[b], x[8 * LD + b]);
#pragma unroll
      for (int j = 0; j < N / 8; j++) multiply(sum.c[j], l, right(y[j * 8 * LD + a], y[j * 8 * LD + b]));
    }
}

/* Adds w y: sixteen rows of weights over N, in registers, with N rows y [.][LD] in shared memory. */
template <int N> __device__ __forceinline__ void accumulate(Sum<HD> &sum, const Sum<N> &w, const real *y) {
  y += 2 * lane_pair() * LD + lane_row();
#pragma unroll
  for (int k = 0; k < N / 8; k++) {
    const Left l = left(w.c[k][0], w.c[k][2], w.c[k][1], w.c[k][3]);
#pragma unroll
    for (int j = 0; j < HD / 8; j++) multiply(sum.c[j], l, right(y[k * 8 * LD + j * 8], y[(k * 8 + 1) * LD + j * 8]));
  }
}

/* --- memory --- */

/* 16 bytes into shared memory, in a while; of the source only `bytes`, 16 or none, the rest zeros. */
__device__ __forceinline__ void fetch(real *to, const real *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void close_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ __forceinline__ void await_all_groups() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ void await_all_groups_but_one() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/* Rows first .. of x [n][HD] into shared memory [ROWS][LD], zeros past the end. BLOCK: threads of the block. */
template <int ROWS, int BLOCK = TEAM>
__device__ __forceinline__ void bring(real *to, const real *x, int first, int n) {
  constexpr int PIECES = HD / VEC;
  for (int i = threadIdx.x; i < ROWS * PIECES; i += BLOCK) {
    const int r = i / PIECES, at = i % PIECES * VEC;
    fetch(to + r * LD + at, x + wide(min(first + r, n - 1)) * HD + at, first + r < n ? 16 : 0);
  }
}

/* This warp's tile of the block's, and its turn among the SHARING warps of that tile. */
template <int SHARING = SPLITS> __device__ __forceinline__ int own_tile() { return threadIdx.x / 32 / SHARING; }
template <int SHARING = SPLITS> __device__ __forceinline__ int own_split() { return threadIdx.x / 32 % SHARING; }

/* Rows first .. end-1 of x and y [n][HD] stream by; work(x tile, y tile, start): a warp's STEP rows from start on; ALL:
   also of a warp whose rows are past the end, zeros then; without BOTH only x comes. `space`: STAGES * 2 * STREAM. What
   was fetched before is there when the first work begins. */
template <bool ALL, bool BOTH = true, typename Work>
__device__ __forceinline__ void walk(const real *x, const real *y, real *space, int first, int end, int n, Work work) {
  const auto load = [=](int start, int stage) {
    bring<ROUND>(space + stage * 2 * STREAM, x, start, n);
    if (BOTH) bring<ROUND>(space + (stage * 2 + 1) * STREAM, y, start, n);
  };
  load(first, 0);
  close_group();
  for (int start = first, stage = 0; start < end; start += ROUND) {
    if (STAGES == 2) {
      if (start + ROUND < end) load(start + ROUND, stage ^ 1);
      close_group();
      await_all_groups_but_one();
    } else {
      await_all_groups();
    }
    __syncthreads();
    const int mine = start + own_split() * STEP;
    const real *tile = space + stage * 2 * STREAM + own_split() * STEP * LD;
    if (ALL || mine < end) work(tile, tile + STREAM, mine);
    __syncthreads();
    if (STAGES == 2) {
      stage ^= 1;
    } else if (start + ROUND < end) {
      load(start + ROUND, 0);
      close_group();
    }
  }
}

/* Adds what the other warps of a tile have to the sum of its first. */
template <int SHARING = SPLITS> __device__ __forceinline__ void join(Sum<HD> &sum, real *space) {
  constexpr int SIZE = HD * 16;
  if (SHARING == 1) return;
  real *at = space + own_tile<SHARING>() * (SHARING - 1) * SIZE + threadIdx.x % 32;
  if (own_split<SHARING>())
#pragma unroll
    for (int i = 0; i < HD / 2; i++) at[(own_split<SHARING>() - 1) * SIZE + i * 32] = sum.c[i / 4][i % 4];
  __syncthreads();
  if (!own_split<SHARING>())
    for (int s = 0; s < SHARING - 1; s++)
#pragma unroll
      for (int i = 0; i < HD / 2; i++) sum.c[i / 4][i % 4] += at[s * SIZE + i * 32];
  __syncthreads();
}

/* Rows of the sum of a tile's first warp to x [n][HD], from row `first` on. */
template <int SHARING = SPLITS> __device__ __forceinline__ void put(Sum<HD> &sum, real *x, int first, int n) {
  if (own_split<SHARING>()) return;
  each(sum, [=](real &value, int r, int d) {
    if (first + r < n) x[wide(first + r) * HD + d] = value;
  });
}
