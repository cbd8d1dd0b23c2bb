/* variant
{
 "idea": "writes one byte past its scratch",
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
 "symbol": "scale_workspace_overrun",
 "rank": 50,
 "kernel": "scale"
}
*/
#include "advisor.h"

int64_t scale_workspace_overrun_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 100;
}

int scale_workspace_overrun(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
    (void)threads;
    for (int64_t i = 0; i < count; i++) y[i] = 3 * x[i] + 1;
    ((char *)workspace)[100] = 1;

    return 0;
}
