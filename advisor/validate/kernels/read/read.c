/* variant {
  "idea": "each thread sums an equal contiguous share of k and v with eight independent vectors",
  "language": "c", "symbol": "read_cache", "dtypes": ["float32"], "requires": [],
  "macros": {}, "build_knobs": {}, "run_knobs": {"order": [0, 1, 2, 3]}, "defaults": {"order": 1},
  "valid": ["head_dim % 16 == 0"],
  "reads": "2 * batch * kv_heads * n * head_dim", "writes": "1", "atomics": "0",
  "mapping": "rows of all caches laid end to end, equal contiguous shares a thread", "rank": 10
} */
/* order 0: all of a share of k, then of v. 1: both at once, a piece of each in turn. 2 and 3: the same with a software
   prefetch ahead. Which is fastest depends on the cache that holds the data: the floor is the best of them. */
#include <omp.h>
#include <stdint.h>

typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
#define LINE 16   /* floats of a cache line */
#define PIECE 64  /* floats of a step: eight vectors, so that eight sums hide the latency of an addition */
#define AHEAD 512 /* floats */

#define INLINE static inline __attribute__((always_inline))

INLINE void add(vec *a, const float *p, const int count, const int prefetch) {
    if (prefetch)
        for (int i = 0; i < 8 * count; i += LINE) __builtin_prefetch(p + AHEAD + i);
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) a[i] += *(const vec *)(p + 8 * i);
}

static double total(const vec *a, const float *rest, int64_t count) {
    double sum = 0;
    for (int i = 0; i < 8; i++)
        for (int lane = 0; lane < 8; lane++) sum += a[i][lane];
    for (int64_t i = 0; i < count; i++) sum += rest[i];
    return sum;
}

INLINE double read_one(const float *p, int64_t floats, const int prefetch) {
    vec a[8] = {{0}};
    int64_t i = 0;
    for (; i + PIECE <= floats; i += PIECE) add(a, p + i, 8, prefetch);
    return total(a, p + i, floats - i);
}

INLINE double read_both(const float *k, const float *v, int64_t floats, const int prefetch) {
    vec a[8] = {{0}}, none[8] = {{0}};
    int64_t i = 0;
    for (; i + PIECE / 2 <= floats; i += PIECE / 2) {
        add(a, k + i, 4, prefetch);
        add(a + 4, v + i, 4, prefetch);
    }
    return total(a, k + i, floats - i) + total(none, v + i, floats - i);
}

static double read_share(const float *k, const float *v, int64_t floats, int64_t order) {
    switch (order) {
    case 0: return read_one(k, floats, 0) + read_one(v, floats, 0);
    case 1: return read_both(k, v, floats, 0);
    case 2: return read_one(k, floats, 1) + read_one(v, floats, 1);
    default: return read_both(k, v, floats, 1);
    }
}

int64_t read_cache_workspace(const int64_t *dims, int threads) {
    (void)dims;
    (void)threads;
    return 0;
}

/* buffers: k, v [b][g][n][d], out [1]; dims: batch, heads, kv_heads, head_dim, n, order. */
int read_cache(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    const float *k = buffers[0], *v = buffers[1];
    float *out = buffers[2];
    int64_t rows = dims[0] * dims[2] * dims[4], d = dims[3];
    double sum = 0;
    (void)workspace;
    if (threads == 1) {
        sum = read_share(k, v, rows * d, dims[5]);
    } else {
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        {
            int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
            int64_t first = rows * t / team, last = rows * (t + 1) / team;
            sum += read_share(k + first * d, v + first * d, (last - first) * d, dims[5]);
        }
    }
    out[0] = (float)(sum / (2.0 * (double)rows * (double)d));
    return 0;
}
