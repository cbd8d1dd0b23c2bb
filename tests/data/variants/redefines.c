/* variant
{
 "idea": "compiles with another knob than it was given",
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
 "symbol": "scale_redefines",
 "rank": 50,
 "build_knobs": {
  "ADV_STEP": [
   1,
   2
  ]
 },
 "defaults": {
  "ADV_STEP": 1
 },
 "kernel": "scale"
}
*/
#include "advisor.h"
#ifndef ADV_STEP
#define ADV_STEP 1
#endif
#undef ADV_STEP
#define ADV_STEP 8

int64_t scale_redefines_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 0;
}

int scale_redefines(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
    (void)threads;
    for (int64_t i = 0; i < count; i++) y[i] = 3 * x[i] + 1;

    return 0;
}
