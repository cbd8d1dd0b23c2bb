/* variant
{
 "idea": "computes with an integer that overflows",
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
 "symbol": "scale_overflows",
 "rank": 50,
 "kernel": "scale"
}
*/
#include "advisor.h"

int64_t scale_overflows_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 0;
}

int scale_overflows(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
    (void)threads;
    for (int64_t i = 0; i < count; i++) y[i] = 3 * x[i] + 1;
    int spread = 0x7fffffff;
    if (count > 0) spread += (int)n;
    if (spread == 5) y[0] = 0;

    return 0;
}
