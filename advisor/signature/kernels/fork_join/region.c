/* variant {
  "idea": "one parallel region in which each thread copies its share of a few numbers",
  "language": "c", "symbol": "fork_join_region", "dtypes": ["float32"], "requires": [],
  "reads": "n", "writes": "n", "atomics": "0",
  "mapping": "equal contiguous shares, one a thread", "rank": 10
} */
#include <omp.h>
#include <stdint.h>

int64_t fork_join_region_workspace(const int64_t *dims, int threads) {
    (void)dims;
    (void)threads;
    return 0;
}

/* buffers: x, y [n]; dims: n. A team of one enters the region too: what that costs is part of the answer. */
int fork_join_region(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    const float *x = buffers[0];
    float *y = buffers[1];
    int64_t n = dims[0];
    (void)workspace;
#pragma omp parallel num_threads(threads)
    {
        int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
        for (int64_t i = n * t / team; i < n * (t + 1) / team; i++) y[i] = x[i];
    }
    return 0;
}
