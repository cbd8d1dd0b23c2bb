/* CUDA's threads of one block as fibers of one thread, so that a kernel runs on a CPU: for tests of what it computes.

   A fiber runs until it waits: for all fibers of the block, or in a shuffle for the others of its mask. Blocks come one
   after another, so `__shared__` is static memory, and dynamic shared memory is one array, which is filled with NaN
   before each block. What a device would not define, or would wait for in vain, ends the launch with words (`fault`). */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <list>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __constant__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct Triple { unsigned x, y, z; };
static Triple threadIdx, blockIdx, blockDim, gridDim;
static const unsigned warpSize = 32;

enum { MOST_THREADS = 1024, STACK_BYTES = 256 << 10, MOST_SHARED = 227 << 10, BEYOND = 4096 };
alignas(1024) static unsigned char dynamic_shared[MOST_SHARED + BEYOND];

struct Shown { unsigned word[6]; };
struct Meeting { /* of the lanes of one mask: they use two places in turn, for nobody is two meetings ahead of another */
  unsigned mask, arrived[2], passed[2], turns[32];
  Shown shown[2][32];
};
struct Warp {
  unsigned live;
  std::list<Meeting> meetings;
};
struct Fiber {
  jmp_buf place;
  const unsigned *watched; /* it waits until this is another number than `seen` */
  unsigned seen;
  bool begun, done;
};

static jmp_buf scheduler;
static Fiber fibers[MOST_THREADS];
static Warp warps[MOST_THREADS / 32];
static unsigned current, waiting, generation, live, progress;
static char fault[200];
static void (*entered)(const void *);
static const void *entry;

static void refuse(const char *words) {
  if (!*fault) snprintf(fault, sizeof fault, "%s, block (%u, %u, %u), thread %u", words, blockIdx.x, blockIdx.y,
                        blockIdx.z, current);
}

/* Go on with others until a number has changed. */
static __attribute__((noinline)) void await(const unsigned *watched, unsigned seen) {
  const unsigned own = current;
  fibers[own].watched = watched;
  fibers[own].seen = seen;
  asm volatile("" ::: "memory");
  if (!_setjmp(fibers[own].place)) _longjmp(scheduler, 1);
  asm volatile("" ::: "memory");
  current = own;
  threadIdx = {own, 0, 0};
}

static void settle_barrier() {
  if (waiting && waiting == live) {
    waiting = 0;
    generation++;
    progress++;
  }
}

static void settle(Warp &warp, Meeting &one) {
  for (unsigned turn = 0; turn < 2; turn++)
    if (one.arrived[turn] && one.arrived[turn] == (one.mask & warp.live)) {
      one.arrived[turn] = 0;
      one.passed[turn]++;
      progress++;
    }
}

static void __syncthreads() {
  const unsigned mine = generation;
  waiting++;
  progress++;
  settle_barrier();
  if (mine == generation) await(&generation, mine);
}

/* What the lanes of a mask show, once all have that did not end: `read` is handed it. */
template <typename Read> static void meet(unsigned mask, const Shown &mine, Read read) {
  Warp &warp = warps[current / 32];
  const unsigned lane = current % 32;
  if (!(mask >> lane & 1)) return refuse("a thread is not in its own mask");
  Meeting *one = nullptr;
  for (Meeting &other : warp.meetings)
    if (other.mask == mask) one = &other;
  if (!one) one = &*warp.meetings.insert(warp.meetings.end(), Meeting{mask});
  const unsigned turn = one->turns[lane]++ & 1, seen = one->passed[turn];
  one->shown[turn][lane] = mine;
  one->arrived[turn] |= 1u << lane;
  progress++;
  settle(warp, *one);
  if (one->passed[turn] == seen) await(&one->passed[turn], seen);
  read((const Shown *)one->shown[turn]);
}

/* The value that another lane of the mask shows; the own one where `other` is no lane of the part. */
template <typename T> static T from_lane(unsigned mask, T value, int other, bool inside) {
  static_assert(sizeof(T) <= sizeof(Shown), "a shuffle of at most 24 bytes");
  Shown mine = {};
  memcpy(&mine, &value, sizeof value);
  const unsigned alive = warps[current / 32].live;
  meet(mask, mine, [&](const Shown *all) {
    if (!inside) return;
    if (!((mask & alive) >> other & 1)) return refuse("a shuffle reads from a lane that is not there");
    memcpy(&value, &all[other], sizeof value);
  });
  return value;
}

static void fiber_main() {
  for (;;) {
    entered(entry);
    const unsigned own = current;
    Warp &warp = warps[own / 32];
    fibers[own].done = true;
    live--;
    warp.live &= ~(1u << own % 32);
    progress++;
    settle_barrier();
    for (Meeting &one : warp.meetings) settle(warp, one);
    if (!_setjmp(fibers[own].place)) _longjmp(scheduler, 1);
    threadIdx = {current, 0, 0};
  }
}

static char *stacks;

static __attribute__((noinline)) void resume(unsigned which) {
  if (_setjmp(scheduler)) return;
  current = which;
  threadIdx = {which, 0, 0};
  Fiber &one = fibers[which];
  if (one.begun) _longjmp(one.place, 1);
  one.begun = true;
  ucontext_t fresh;
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stacks + size_t(which) * STACK_BYTES;
  fresh.uc_stack.ss_size = STACK_BYTES;
  fresh.uc_link = nullptr;
  makecontext(&fresh, fiber_main, 0);
  setcontext(&fresh);
}

static void run_block(unsigned block, unsigned shared) {
  memset(dynamic_shared, 0xff, shared);
  memset(dynamic_shared + shared, 0xa5, BEYOND);
  waiting = 0;
  live = block;
  for (unsigned warp = 0; warp * 32 < block; warp++) {
    const unsigned lanes = block - warp * 32;
    warps[warp].live = lanes < 32 ? (1u << lanes) - 1 : ~0u;
    warps[warp].meetings.clear();
  }
  for (unsigned i = 0; i < block; i++) fibers[i].done = false, fibers[i].watched = nullptr;
  while (live && !*fault) {
    const unsigned before = progress;
    for (unsigned i = 0; i < block && !*fault; i++)
      if (!fibers[i].done && !(fibers[i].watched && *fibers[i].watched == fibers[i].seen)) resume(i);
    if (live && before == progress) refuse("threads wait for others that never come");
  }
  for (unsigned i = 0; i < BEYOND; i++)
    if (dynamic_shared[shared + i] != 0xa5) return refuse("wrote beyond the dynamic shared memory");
}

/* Run one block after another; `kernel` is called by every thread. A fault leaves fibers that are begun anew. */
template <typename Kernel> static void launch(Triple grid, unsigned block, unsigned shared, const Kernel &kernel) {
  if (!stacks)
    stacks = (char *)mmap(nullptr, size_t(MOST_THREADS) * STACK_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *fault = 0;
  gridDim = grid;
  blockDim = {block, 1, 1};
  entry = &kernel;
  entered = [](const void *of) { (*(const Kernel *)of)(); };
  if (block > MOST_THREADS || shared > MOST_SHARED) return refuse("more threads or shared memory than a block has");
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x && !*fault; x++) {
        blockIdx = {x, y, z};
        run_block(block, shared);
      }
  if (*fault)
    for (Fiber &one : fibers) one.begun = false;
}

/* --- a call from outside: pointers first, then whole numbers --- */

struct Call {
  void *const *pointers;
  const int *numbers;
  unsigned pointer_count, number_count;
  Triple grid;
  unsigned block, shared;
};

template <typename P> struct is_pointer { static const bool value = false; };
template <typename P> struct is_pointer<P *> { static const bool value = true; };
template <typename P> struct is_pointer<P *__restrict__> { static const bool value = true; };

template <typename P> static P argument(const Call &call, size_t place) {
  if constexpr (is_pointer<P>::value) return (P)call.pointers[place];
  else return (P)call.numbers[place - call.pointer_count];
}

template <typename... P, size_t... I>
static void enter(void (*kernel)(P...), const Call &call, std::index_sequence<I...>) {
  launch(call.grid, call.block, call.shared, [&] { kernel(argument<P>(call, I)...); });
}

template <typename... P> static const char *start(void (*kernel)(P...), const Call &call) {
  const unsigned pointers = (0u + ... + unsigned(is_pointer<P>::value));
  if (pointers != call.pointer_count || sizeof...(P) != pointers + call.number_count) {
    snprintf(fault, sizeof fault, "takes %u pointers and %u numbers, is handed %u and %u", pointers,
             unsigned(sizeof...(P)) - pointers, call.pointer_count, call.number_count);
    return fault;
  }
  enter(kernel, call, std::index_sequence_for<P...>());
  return fault;
}
