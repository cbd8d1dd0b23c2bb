/* variant {
  "idea": "register tiles: a strip of query rows lies across the lanes, so softmax needs no sums across lanes and k, v are read where they lie",
  "language": "c", "symbol": "forward_tiled", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [1, 2, 3]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2},
  "valid": ["head_dim <= 256", "ADV_M * ADV_N <= 24", "ADV_M * ADV_N >= 12", "ADV_M * ADV_N != 18"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim", "atomics": "0",
  "mapping": "strips of ADV_N vectors of query rows, handed out one by one, head after head, the longest first", "rank": 10
} */
#include <omp.h>

#include "tile.h"

#ifndef ADV_D
#define ADV_D 64 /* head_dim */
#endif
#ifndef ADV_M
#define ADV_M 6 /* rows of k, and elements of out, in one tile */
#endif
#ifndef ADV_N
#define ADV_N 2 /* vectors in one tile */
#endif

#define STRIP (ADV_N * W)  /* query rows that are worked on together, one a lane */
#define BLOCK (16 * ADV_M) /* rows of k at once: 8 to 32 tiles do equally well */

typedef struct {
    const real *q, *k, *v; /* one head: [n][d] each */
    real *out;
    int64_t n;
    int causal;
} Head;

/* A thread's scratch: q [d][STRIP], out [d][STRIP], scores [BLOCK][STRIP], maximum, total and factor [STRIP]. */
#define SCRATCH ((2 * ADV_D + BLOCK + 3) * STRIP)

/* Scores of `rows` rows of k to weights against the new maximum; the factor by which earlier sums shrink. */
INLINE void weigh(real *s, int64_t rows, real *most, real *total, real *factor) {
    UNROLL for (int x = 0; x < STRIP; x += W) {
        vec old = load(most + x), best = old;
        for (int64_t j = 0; j < rows; j++) best = larger(best, load(s + j * STRIP + x));
        vec shrink = exp2_of(old - best), sum = load(total + x) * shrink;
        for (int64_t j = 0; j < rows; j++) {
            vec weight = exp2_of(load(s + j * STRIP + x) - best);
            store(s + j * STRIP + x, weight);
            sum += weight;
        }
        store(most + x, best);
        store(total + x, sum);
        store(factor + x, shrink);
    }
}

/* Row j of k counts for query rows first + lane >= j only. */
static void mask(real *s, int64_t j, int64_t rows, int64_t first) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t lane = 0; lane < STRIP && first + lane < j + r; lane++) s[r * STRIP + lane] = LOWEST;
}

static void write_out(const real *sums, const real *total, int64_t rows, real *out) {
    for (int64_t r = 0; r < rows; r++) {
        real part = 1 / total[r];
        for (int d = 0; d < ADV_D; d++) out[r * ADV_D + d] = sums[d * STRIP + r] * part;
    }
}

/* Query rows first .. first + STRIP - 1 of one head, fewer at the end. */
static void strip(const Head *head, int64_t first, real *scratch) {
    real *q = scratch, *sums = q + ADV_D * STRIP, *s = sums + ADV_D * STRIP, *most = s + BLOCK * STRIP;
    real *total = most + STRIP, *factor = total + STRIP;
    int64_t rows = head->n - first < STRIP ? head->n - first : STRIP;
    int64_t end = head->causal ? first + rows : head->n;
    transpose_in(head->q + first * ADV_D, rows, ADV_D, STRIP, LOG2_E / (real)sqrt((double)ADV_D), q);
    for (int lane = 0; lane < STRIP; lane++) most[lane] = LOWEST, total[lane] = 0;
    memset(sums, 0, ADV_D * STRIP * sizeof(real));
    for (int64_t j = 0; j < end; j += BLOCK) {
        int64_t count = end - j < BLOCK ? end - j : BLOCK;
        Left k = {head->k + j * ADV_D, ADV_D, 1}, v = {head->v + j * ADV_D, 1, ADV_D};
        tiles(ADV_M, ADV_N, ZERO, count, k, q, STRIP, ADV_D, s, STRIP, 0);
        if (head->causal && j + count > first) mask(s, j, count, first);
        weigh(s, count, most, total, factor);
        tiles(ADV_M, ADV_N, SCALED, ADV_D, v, s, STRIP, count, sums, STRIP, factor);
    }
    write_out(sums, total, rows, head->out + first * ADV_D);
}

int64_t forward_tiled_workspace(const int64_t *dims, int threads) {
    (void)dims;
    return (int64_t)threads * SCRATCH * REAL_BYTES;
}

/* buffers: q [b][h][n][d], k, v [b][g][n][d], out [b][h][n][d].
   dims: batch, heads, kv_heads, head_dim, causal, n. */
int forward_tiled(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D) return 1;
    int64_t heads = dims[0] * dims[1], sharing = dims[1] / dims[2], n = dims[5];
    int64_t strips = (n + STRIP - 1) / STRIP, size = n * ADV_D;
#pragma omp parallel num_threads(threads)
    {
        real *scratch = (real *)workspace + (int64_t)omp_get_thread_num() * SCRATCH;
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < heads * strips; task++) {
            int64_t h = task / strips, first = (strips - 1 - task % strips) * STRIP;
            Head head = {(const real *)buffers[0] + h * size, (const real *)buffers[1] + h / sharing * size,
                         (const real *)buffers[2] + h / sharing * size, (real *)buffers[3] + h * size, n, (int)dims[4]};
            strip(&head, first, scratch);
        }
    }
    return 0;
}
