/* variant {
  "idea": "two passes a query head with the scores kept in memory; parallel over batch and heads only",
  "language": "c", "symbol": "decode_naive", "dtypes": ["float32", "float64", "bfloat16", "float16"], "requires": [],
  "macros": {"ADV_V": "32"}, "build_knobs": {}, "run_knobs": {}, "defaults": {}, "valid": [],
  "reads": "batch * heads * (head_dim + 2 * n * head_dim + 2 * n)", "writes": "batch * heads * (head_dim + 2 * n)",
  "atomics": "0",
  "mapping": "one query head a task, static schedule over batch * heads tasks", "rank": 90
} */
#include "rows.h"

/* Numbers of one query head's scores in memory. */
static int64_t padded(int64_t n) { return (n + W - 1) / W * W; }

/* s [n] = scores of q [d] against k [n][d], in powers of two; returns the largest. */
static real score(const real *q, const stored *k, real *s, int64_t n, int64_t head_dim) {
    real scale = LOG2_E / (real)sqrt((double)head_dim), most = LOWEST;
    for (int64_t j = 0; j < n; j++) {
        real dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < head_dim; d++) dot += q[d] * widen_one(k[j * head_dim + d]);
        s[j] = dot * scale;
        most = s[j] > most ? s[j] : most;
    }
    return most;
}

/* s [n padded to vectors] to weights, in place; returns their total. */
static real weigh(real *s, int64_t n, real most) {
    vec total = {0};
    for (int64_t j = n; j < padded(n); j++) s[j] = LOWEST;
    for (int64_t j = 0; j < n; j += W) {
        vec weight = exp2_of(load(s + j) - spread(most));
        store(s + j, weight);
        total += weight;
    }
    return lanes_sum(total);
}

/* out [d] = sum of s [n] times v [n][d], over total. */
static void average(const real *s, const stored *v, real *out, int64_t n, int64_t head_dim, real total) {
    for (int64_t d = 0; d < head_dim; d++) out[d] = 0;
    for (int64_t j = 0; j < n; j++) {
#pragma omp simd
        for (int64_t d = 0; d < head_dim; d++) out[d] += s[j] * widen_one(v[j * head_dim + d]);
    }
    for (int64_t d = 0; d < head_dim; d++) out[d] /= total;
}

int64_t decode_naive_workspace(const int64_t *dims, int threads) {
    (void)threads;
    return dims[0] * dims[1] * padded(dims[4]) * (int64_t)sizeof(real);
}

/* buffers: q [b][h][d], k and v [b][g][n][d], out [b][h][d]; dims: batch, heads, kv_heads, head_dim, n. */
int decode_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    const real *q = buffers[0];
    const stored *k = buffers[1], *v = buffers[2];
    real *out = buffers[3], *scores = workspace;
    int64_t heads = dims[0] * dims[1], sharing = dims[1] / dims[2], head_dim = dims[3], n = dims[4];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t head = 0; head < heads; head++) {
        int64_t cache = head / sharing * n * head_dim;
        real *s = scores + head * padded(n);
        real most = score(q + head * head_dim, k + cache, s, n, head_dim);
        real total = weigh(s, n, most);
        average(s, v + cache, out + head * head_dim, n, head_dim, total);
    }
    return 0;
}
