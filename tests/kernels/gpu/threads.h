/* CUDA's threads of one block as fibers of one thread, so that a kernel runs on a CPU: for tests of what it computes.

   A fiber runs until it waits: for all fibers of the block, or in a shuffle for the 32 of its warp. Blocks come one after
   another, so `__shared__` is static memory. Functions that are assembler in the source are given here instead. */
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
using std::fma;
using std::max;
using std::min;

struct Triple { unsigned x, y, z; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) double2 { double x, y; };

static Triple threadIdx, blockIdx, gridDim;

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  Triple index;
  bool done;
  unsigned meetings;
};
struct Shown { unsigned word[6]; };
struct Warp {
  unsigned arrived[2], finished[2];
  Shown shown[2][32];
};
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static unsigned current, waiting, generation;

static void pause() {
  const unsigned own = current;
  swapcontext(&fibers[own].context, &scheduler);
  threadIdx = fibers[own].index;
}

static void __syncthreads() {
  const unsigned mine = generation;
  if (++waiting == fibers.size()) {
    waiting = 0;
    generation++;
  }
  while (mine == generation) pause();
}

/* What all lanes of the warp show, once all have. They use two places in turn: nobody can be two meetings ahead of a
   lane that has not read. */
static std::vector<Shown> meet(const Shown &mine) {
  Fiber &own = fibers[current];
  Warp &warp = warps[current / 32];
  const unsigned turn = own.meetings++ & 1;
  warp.shown[turn][current % 32] = mine;
  warp.arrived[turn]++;
  while (warp.arrived[turn] < 32) pause();
  std::vector<Shown> found(warp.shown[turn], warp.shown[turn] + 32);
  if (++warp.finished[turn] == 32) warp.arrived[turn] = warp.finished[turn] = 0;
  return found;
}

template <typename T> static T __shfl_xor_sync(unsigned, T value, int other) {
  Shown mine = {};
  memcpy(&mine, &value, sizeof value);
  const Shown theirs = meet(mine)[current % 32 ^ unsigned(other)];
  memcpy(&value, &theirs, sizeof value);
  return value;
}

static void __threadfence() {}
template <typename T> static T __ldcg(const T *p) { return *p; }
static unsigned atomicAdd(unsigned *p, unsigned by) { return (*p += by) - by; }

template <typename To, typename From> static To as(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits of one size");
  To found;
  memcpy(&found, &value, sizeof found);
  return found;
}
static float __uint_as_float(unsigned bits) { return as<float>(bits); }
static double __hiloint2double(int high, int low) {
  return as<double>(uint64_t(unsigned(high)) << 32 | unsigned(low));
}
static unsigned __byte_perm(unsigned x, unsigned y, unsigned pick) {
  const uint64_t both = uint64_t(y) << 32 | x;
  unsigned found = 0;
  for (int i = 0; i < 4; i++) found |= unsigned(both >> (pick >> 4 * i & 7) * 8 & 255) << 8 * i;
  return found;
}

/* IEEE 754 binary16, with subnormal numbers, rounded to nearest even. */
static float from_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31, part = bits & 1023;
  const float size = exponent ? std::ldexp(float(part + 1024), exponent - 25) : std::ldexp(float(part), -24);
  return bits >> 15 ? -size : size;
}
static unsigned short to_half(float x) {
  const float size = std::fabs(x);
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, -13); /* below: steps of 2**-24 */
  const unsigned steps = unsigned(std::nearbyint(std::ldexp(size, 11 - exponent)));
  const unsigned bits = size == 0 ? 0 : steps + (unsigned(exponent + 13) << 10);
  return (unsigned short)(bits | (std::signbit(x) ? 0x8000u : 0u));
}
static unsigned short to_bfloat(float x) {
  const unsigned bits = as<unsigned>(x);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* mma.m16n8k16, row.col: the fragments as PTX ISA has them. `wide`: a 16-bit operand as float. */
template <typename Wide>
static void multiply_tiles(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Wide wide) {
  const int lane = current % 32, g = lane / 4, t = lane % 4;
  unsigned rows[2][8], columns[2][8]; /* A: words of rows g, g + 8 (8 of k each); B: words of columns 2t, 2t + 1 */
  const std::vector<Shown> all = meet({{a[0], a[1], a[2], a[3], b0, b1}});
  for (int w = 0; w < 4; w++)
    for (int j = 0; j < 2; j++) {
      rows[j][w] = all[g * 4 + w].word[j];
      rows[j][w + 4] = all[g * 4 + w].word[j + 2];
      columns[j][w] = all[(2 * t + j) * 4 + w].word[4];
      columns[j][w + 4] = all[(2 * t + j) * 4 + w].word[5];
    }
  for (int i = 0; i < 4; i++)
    for (int w = 0; w < 8; w++)
      for (int half = 0; half < 2; half++)
        c[i] += wide((unsigned short)(rows[i / 2][w] >> 16 * half)) * wide((unsigned short)(columns[i % 2][w] >> 16 * half));
}

/* Run one block after another. `kernel` is called by every thread. */
template <typename Kernel> static void launch(Triple grid, unsigned block, Kernel kernel) {
  static Kernel *entry;
  entry = &kernel;
  gridDim = grid;
  for (unsigned y = 0; y < grid.y; y++)
    for (unsigned x = 0; x < grid.x; x++) {
      blockIdx = {x, y, 0};
      fibers = std::vector<Fiber>(block);
      warps = std::vector<Warp>(block / 32, Warp{});
      waiting = generation = 0;
      for (unsigned i = 0; i < block; i++) {
        Fiber &one = fibers[i];
        one.stack.resize(1 << 16);
        one.index = {i, 0, 0};
        one.done = false;
        one.meetings = 0;
        getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.data();
        one.context.uc_stack.ss_size = one.stack.size();
        one.context.uc_link = &scheduler;
        makecontext(&one.context, (void (*)())+[] {
          threadIdx = fibers[current].index;
          (*entry)();
          fibers[current].done = true;
        }, 0);
      }
      for (unsigned left = block; left;)
        for (current = 0; current < block; current++)
          if (!fibers[current].done) {
            swapcontext(&scheduler, &fibers[current].context);
            left -= fibers[current].done;
          }
    }
}
