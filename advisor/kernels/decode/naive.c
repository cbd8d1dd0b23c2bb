/* variant {
  "idea": "two passes a query head with the scores kept in memory; parallel over batch and heads only",
  "language": "c", "symbol": "decode_naive", "dtypes": ["float32"], "requires": [],
  "macros": {}, "build_knobs": {}, "run_knobs": {}, "defaults": {}, "valid": [],
  "reads": "batch * heads * (head_dim + 2 * n * head_dim + 2 * n)", "writes": "batch * heads * (head_dim + 2 * n)",
  "atomics": "0",
  "mapping": "one query head a task, static schedule over batch * heads tasks", "rank": 90
} */
#include <math.h>

#include "exp2.h"

/* s [n] = scores of q [d] against k [n][d], in powers of two; returns the largest. */
static float score(const float *q, const float *k, float *s, int64_t n, int64_t head_dim) {
    float scale = LOG2_E / sqrtf((float)head_dim), most = LOWEST;
    for (int64_t j = 0; j < n; j++) {
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < head_dim; d++) dot += q[d] * k[j * head_dim + d];
        s[j] = dot * scale;
        most = s[j] > most ? s[j] : most;
    }
    return most;
}

/* s [n] to weights, in place; returns their total. */
static float weigh(float *s, int64_t n, float most) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < n; j++) {
        s[j] = exp2_of(s[j] - most);
        total += s[j];
    }
    return total;
}

/* out [d] = sum of s [n] times v [n][d], over total. */
static void average(const float *s, const float *v, float *out, int64_t n, int64_t head_dim, float total) {
    for (int64_t d = 0; d < head_dim; d++) out[d] = 0;
    for (int64_t j = 0; j < n; j++) {
#pragma omp simd
        for (int64_t d = 0; d < head_dim; d++) out[d] += s[j] * v[j * head_dim + d];
    }
    for (int64_t d = 0; d < head_dim; d++) out[d] /= total;
}

int64_t decode_naive_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return dims[0] * dims[1] * dims[4] * (int64_t)sizeof(float);
}

/* buffers: q [b][h][d], k and v [b][g][n][d], out [b][h][d]; dims: batch, heads, kv_heads, head_dim, n. */
int decode_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    const float *q = buffers[0], *k = buffers[1], *v = buffers[2];
    float *out = buffers[3], *scores = workspace;
    int64_t heads = dims[0] * dims[1], sharing = dims[1] / dims[2], head_dim = dims[3], n = dims[4];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t head = 0; head < heads; head++) {
        int64_t cache = head / sharing * n * head_dim;
        float *s = scores + head * n;
        float most = score(q + head * head_dim, k + cache, s, n, head_dim);
        float total = weigh(s, n, most);
        average(s, v + cache, out + head * head_dim, n, head_dim, total);
    }
    return 0;
}
