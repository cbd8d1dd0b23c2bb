/* The read floor of decode: reads k and v once with the same team, sums them, and does nothing else.

   Entry ABI of a variant (see advisor/kernels/frame/advisor.h): buffers q, k, v, out; dims batch, heads, kv_heads,
   head_dim, n, mode. Each thread reads its equal contiguous share, the same at each call, as the split variants do.
   mode 0: all of a share of k, then of v. mode 1: both at once, a line of each in turn. mode 2 and 3: the same with a
   software prefetch 2 KiB ahead. The floor is the fastest of them. */
#include <omp.h>
#include <stdint.h>

typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
#define LINE 64   /* floats a step: eight vectors, so that eight sums hide the latency of an addition */
#define AHEAD 512 /* floats */

/* Keeps the compiler from dropping the sum. */
static void keep(vec x) { __asm__ volatile("" : : "x"(x)); }

static inline __attribute__((always_inline)) void add(vec *a, const float *p, int count, int prefetch)
{
    if (prefetch)
        for (int i = 0; i < 8 * count; i += 16) __builtin_prefetch(p + AHEAD + i);
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) a[i] += *(const vec *)(p + 8 * i);
}

static inline __attribute__((always_inline)) void read_one(const float *p, int64_t floats, int prefetch)
{
    vec a[8] = {{0}};
    for (int64_t i = 0; i + LINE <= floats; i += LINE) add(a, p + i, 8, prefetch);
    for (int i = 0; i < 8; i++) keep(a[i]);
}

static inline __attribute__((always_inline)) void read_both(const float *k, const float *v, int64_t floats, int prefetch)
{
    vec a[8] = {{0}};
    for (int64_t i = 0; i + LINE / 2 <= floats; i += LINE / 2) {
        add(a, k + i, 4, prefetch);
        add(a + 4, v + i, 4, prefetch);
    }
    for (int i = 0; i < 8; i++) keep(a[i]);
}

static void read_share(const float *k, const float *v, int64_t floats, int64_t mode)
{
    if (mode == 0) { read_one(k, floats, 0); read_one(v, floats, 0); }
    if (mode == 1) read_both(k, v, floats, 0);
    if (mode == 2) { read_one(k, floats, 1); read_one(v, floats, 1); }
    if (mode == 3) read_both(k, v, floats, 1);
}

int64_t read_floor_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 64;
}

int read_floor(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const float *k = buffers[1], *v = buffers[2];
    int64_t rows = dims[0] * dims[2] * dims[4];
    (void)workspace;
    if (threads == 1) {
        read_share(k, v, rows * dims[3], dims[5]);
        return 0;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
        int64_t first = rows * t / team * dims[3], last = rows * (t + 1) / team * dims[3];
        read_share(k + first, v + first, last - first, dims[5]);
    }
    return 0;
}
