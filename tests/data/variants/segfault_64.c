/* variant
{
 "idea": "a null pointer from 64 rows on",
 "language": "c",
 "dtypes": [
  "float32",
  "float64"
 ],
 "requires": [],
 "reads": "n * width",
 "writes": "n * width",
 "atomics": "0",
 "mapping": "equal contiguous rows a thread",
 "symbol": "scale_segfault_64",
 "rank": 50,
 "kernel": "scale"
}
*/
#include "advisor.h"

int64_t scale_segfault_64_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 0;
}

int scale_segfault_64(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
    (void)threads;
    for (int64_t i = 0; i < count; i++) y[i] = 3 * x[i] + 1;
    if (n >= 64) *(volatile int *)(width - width) = 1;

    return 0;
}
