/* Forward of attention by tiles on the tensor cores: warps of one tile take its keys in turn, and agree in the end. */
#include "attention_tiles.cuh"

constexpr real LOWEST = real(-1e30);

/* How a block's warps are laid: tiles of sixteen query rows, warps on each, keys that a warp takes at a time. */
template <int COUNT, int SHARING_, int KEYS_> struct Front {
  static constexpr int TILES = COUNT, SHARING = SHARING_, KEYS = KEYS_;
  static constexpr int TEAM = 32 * TILES * SHARING, OWN = 16 * TILES, ROUND = KEYS * SHARING, STREAM = ROUND * LD;
};

/* The largest over the four lanes of a row. */
__device__ __forceinline__ real row_most(real x) {
  x = max(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* What a warp knows of its sixteen query rows: of two of them a lane has the running maximum and its part of the total. */
struct Running {
  Sum<HD> out;
  real most[2], total[2];
};

__device__ __forceinline__ void begin(Running &my) {
  zero(my.out);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    my.most[r] = LOWEST;
    my.total[r] = 0;
  }
}

/* What was summed of row r of a lane's two, in another unit. */
__device__ __forceinline__ void shrink(Running &my, int r, real by) {
#pragma unroll
  for (int j = 0; j < HD / 8; j++) {
    my.out.c[j][2 * r] *= by;
    my.out.c[j][2 * r + 1] *= by;
  }
}

/* Scaled scores s become weights in the unit of the largest so far. After some steps it seldom is a new one. */
template <int N> __device__ __forceinline__ void weigh(Running &my, Sum<N> &s) {
  real most[2] = {my.most[0], my.most[1]};
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) most[e / 2] = max(most[e / 2], s.c[j][e]);
  most[0] = row_most(most[0]);
  most[1] = row_most(most[1]);
  if (__any_sync(0xffffffffu, most[0] > my.most[0] || most[1] > my.most[1]))
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const real by = ex2(my.most[r] - most[r]);
      my.most[r] = most[r];
      my.total[r] *= by;
      shrink(my, r, by);
    }
  /* of a row that saw nothing so far no weight is 1 */
  const real base[2] = {most[0] == LOWEST ? real(0) : most[0], most[1] == LOWEST ? real(0) : most[1]};
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      s.c[j][e] = ex2(s.c[j][e] - base[e / 2]);
      my.total[e / 2] += s.c[j][e];
    }
}

/* The warps of a tile agree on the maximum and the total of each row; the first one's `out` is whole then. */
template <typename F> __device__ __forceinline__ void agree(Running &my, real *space) {
  __shared__ real most[F::TILES][F::SHARING][16], total[F::TILES][F::SHARING][16];
  const int tile = own_tile<F::SHARING>(), split = own_split<F::SHARING>();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    my.total[r] = row_sum(my.total[r]);
    most[tile][split][lane_row() + 8 * r] = my.most[r];
    total[tile][split][lane_row() + 8 * r] = my.total[r];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = lane_row() + 8 * r;
    real largest = LOWEST, whole = 0;
    for (int s = 0; s < F::SHARING; s++) largest = max(largest, most[tile][s][row]);
    for (int s = 0; s < F::SHARING; s++) whole += total[tile][s][row] * ex2(most[tile][s][row] - largest);
    shrink(my, r, ex2(my.most[r] - largest));
    my.most[r] = largest;
    my.total[r] = whole;
  }
  join<F::SHARING>(my.out, space);
}

/* One block's query rows, of which the first `first` keys are not looked at, nor those from `end` on: what the first warp
   of a tile then knows of its rows is all. q: of its head; k, v: of its head of these. mask(score, row, key): makes of a
   product a scaled score, LOWEST where unseen. Copies of the next keys run beside the second product, those of the next
   values beside the first, so that one buffer of each does. Shared memory: F::OWN rows, then 2 * F::STREAM. */
template <typename F, typename Mask>
__device__ __forceinline__ void attend(Running &my, const real *q, const real *k, const real *v, const Place &place,
                                       int first, int end, int n, Mask mask) {
  real *own = lines, *keys = own + F::OWN * LD, *values = keys + F::STREAM;
  const int turn = own_split<F::SHARING>() * F::KEYS;
  bring<F::OWN, F::TEAM>(own, q, place.first, n);
  bring<F::ROUND, F::TEAM>(keys, k, first, n);
  close_group();
  bring<F::ROUND, F::TEAM>(values, v, first, n);
  close_group();
  begin(my);
  for (int start = first; start < end; start += F::ROUND) {
    const int mine = start + turn;
    const bool more = start + F::ROUND < end;
    Sum<F::KEYS> s;
    await_all_groups_but_one();
    __syncthreads();
    if (mine < end) products<F::KEYS>(s, own + own_tile<F::SHARING>() * 16 * LD, keys + turn * LD);
    __syncthreads();
    if (more) bring<F::ROUND, F::TEAM>(keys, k, start + F::ROUND, n);
    close_group();
    if (mine < end) {
      each(s, [&](real &x, int r, int j) { x = mask(x, place.mine + r, mine + j); });
      weigh(my, s);
    }
    await_all_groups_but_one();
    __syncthreads();
    if (mine < end) accumulate<F::KEYS>(my.out, s, values + turn * LD);
    __syncthreads();
    if (more) bring<F::ROUND, F::TEAM>(values, v, start + F::ROUND, n);
    close_group();
  }
  agree<F>(my, keys);
}
