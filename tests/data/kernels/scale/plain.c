/* variant
{
 "idea": "one loop over all numbers",
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
 "symbol": "scale_plain",
 "rank": 20
}
*/
#include "advisor.h"

int64_t scale_plain_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 0;
}

int scale_plain(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = 3 * x[i] + 1;

    return 0;
}
