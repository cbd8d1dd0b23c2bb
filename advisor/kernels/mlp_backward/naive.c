/* variant {
  "idea": "row by row ga, gb, h and gx, kept for all rows; then every weight's gradient sums over them, one owner a row of it",
  "language": "c", "symbol": "mlp_backward_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (2 * d_model + 5 * d_model * d_ff) + 3 * batch * n * d_ff * (d_model + 1)",
  "writes": "batch * n * (d_model + 3 * d_ff) + 3 * d_model * d_ff",
  "mapping": "equal contiguous rows a thread, then equal contiguous rows of each gradient", "rank": 90
} */
#include "call.h"

/* ga, gb, h: [rows][f] each. */
int64_t mlp_backward_naive_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return 3 * dims[0] * dims[3] * dims[2] * (int64_t)sizeof(real);
}

static real dot(const real *a, const real *b, int64_t count) {
    real total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t k = 0; k < count; k++) total += a[k] * b[k];
    return total;
}

/* to += factor * from */
static void add(real factor, const real *restrict from, real *restrict to, int64_t count) {
#pragma omp simd
    for (int64_t k = 0; k < count; k++) to[k] += factor * from[k];
}

/* 1 / (1 + exp(-a)); far to the left, where exp overflows, the limit 0. */
static real sigmoid(real a) {
    if (a < -80) return 0;
    return 1 / (1 + (sizeof(real) == 8 ? (real)exp(-(double)a) : (real)expf(-(float)a)));
}

/* gh [f], which ga's room holds until it is ga. */
static void row_of(const Call *c, int64_t i, real *ga, real *gb, real *h) {
    const real *x = c->x + i * c->d, *gy = c->gy + i * c->d;
    real *gx = c->gx + i * c->d;
    memset(ga, 0, c->f * sizeof(real));
    memset(gx, 0, c->d * sizeof(real));
    for (int64_t d = 0; d < c->d; d++) add(gy[d], c->wd + d * c->f, ga, c->f);
    for (int64_t f = 0; f < c->f; f++) {
        real a = dot(x, c->wg + f * c->d, c->d), b = dot(x, c->wu + f * c->d, c->d), s = sigmoid(a), gh = ga[f];
        ga[f] = gh * b * s * (1 + a * (1 - s));
        gb[f] = gh * a * s;
        h[f] = a * s * b;
        add(ga[f], c->wg + f * c->d, gx, c->d);
        add(gb[f], c->wu + f * c->d, gx, c->d);
    }
}

int mlp_backward_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Call c = call_of(buffers, dims);
    real *ga = (real *)workspace, *gb = ga + c.rows * c.f, *h = gb + c.rows * c.f;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < c.rows; i++) row_of(&c, i, ga + i * c.f, gb + i * c.f, h + i * c.f);
#pragma omp for schedule(static) nowait
        for (int64_t f = 0; f < c.f; f++) {
            memset(c.gwg + f * c.d, 0, c.d * sizeof(real));
            memset(c.gwu + f * c.d, 0, c.d * sizeof(real));
            for (int64_t i = 0; i < c.rows; i++) {
                add(ga[i * c.f + f], c.x + i * c.d, c.gwg + f * c.d, c.d);
                add(gb[i * c.f + f], c.x + i * c.d, c.gwu + f * c.d, c.d);
            }
        }
#pragma omp for schedule(static)
        for (int64_t d = 0; d < c.d; d++) {
            memset(c.gwd + d * c.f, 0, c.f * sizeof(real));
            for (int64_t i = 0; i < c.rows; i++) add(c.gy[i * c.d + d], h + i * c.f, c.gwd + d * c.f, c.f);
        }
    }
    return 0;
}
