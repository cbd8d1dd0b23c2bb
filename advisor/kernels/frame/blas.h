/* Products by OpenBLAS, whose OpenMP build runs them on the team of the thread that calls it.

   It takes as many threads as OpenMP would give a region: entries set that number and put it back. For small products
   it takes fewer, down to one. */
#ifndef ADVISOR_BLAS_H
#define ADVISOR_BLAS_H

#include <cblas.h>
#include <omp.h>

#include "advisor.h"

typedef ADV_REAL real;

/* The number of threads of regions to come; returns the one before. */
static inline int use_threads(int threads) {
    int before = omp_get_max_threads();
    if (before != threads) omp_set_num_threads(threads);
    return before;
}

/* c [rows][columns] = a [rows][depth] times w [columns][depth], a row an output; a single row by the product of a matrix
   and a vector. */
static inline void product_by_blas(const real *a, int64_t rows, const real *w, int64_t columns, int64_t depth, real *c) {
    blasint m = (blasint)rows, n = (blasint)columns, k = (blasint)depth;
    if (sizeof(real) == 8 && rows == 1)
        cblas_dgemv(CblasRowMajor, CblasNoTrans, n, k, 1, (const double *)w, k, (const double *)a, 1, 0, (double *)c, 1);
    else if (sizeof(real) == 8)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, (const double *)a, k, (const double *)w, k, 0,
                    (double *)c, n);
    else if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1, (const float *)w, k, (const float *)a, 1, 0, (float *)c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, (const float *)a, k, (const float *)w, k, 0,
                    (float *)c, n);
}

#endif
