/* variant
{
 "idea": "never returns",
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
 "symbol": "scale_hang",
 "rank": 50,
 "kernel": "scale"
}
*/
#include "advisor.h"

int64_t scale_hang_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 0;
}

int scale_hang(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
    (void)n;
    (void)threads;
    for (volatile int forever = 1; forever;) y[0] = x[0] + count;

    return 0;
}
