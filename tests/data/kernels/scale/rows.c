/* variant
{
 "idea": "rows in blocks, the width fixed at compile time",
 "language": "c",
 "dtypes": [
  "float32",
  "float64"
 ],
 "requires": [],
 "reads": "n * width",
 "writes": "n * width",
 "atomics": "0",
 "mapping": "blocks of rows handed out one by one",
 "symbol": "scale_rows",
 "rank": 10,
 "macros": {
  "ADV_WIDTH": "width"
 },
 "build_knobs": {
  "ADV_STEP": [
   1,
   4,
   8
  ]
 },
 "run_knobs": {
  "block": [
   1,
   8,
   64
  ]
 },
 "defaults": {
  "ADV_STEP": 4,
  "block": 8
 },
 "valid": [
  "width % ADV_STEP == 0"
 ]
}
*/
#include "advisor.h"
#ifndef ADV_WIDTH
#define ADV_WIDTH 16
#endif
#ifndef ADV_STEP
#define ADV_STEP 4
#endif

int64_t scale_rows_workspace(const int64_t *dims, int threads)
{
    (void)dims;
    (void)threads;
    return 0;
}

int scale_rows(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *y = buffers[1];
    int64_t width = dims[0], n = dims[1], count = width * n;
    (void)workspace;
    int64_t block = dims[2];
    if (width != ADV_WIDTH) return 1;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t first = 0; first < n; first += block)
        for (int64_t i = first; i < n && i < first + block; i++)
            for (int64_t j = 0; j < ADV_WIDTH; j += ADV_STEP)
                for (int64_t s = 0; s < ADV_STEP; s++) y[i * ADV_WIDTH + j + s] = 3 * x[i * ADV_WIDTH + j + s] + 1;

    return 0;
}
