/* variant {
  "idea": "register tiles, each score computed once: strips of query rows make gq, and add to sums of gk and gv of their thread's own that a tree merges",
  "language": "c", "symbol": "backward_partial", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3], "ADV_STRIPS": [1, 3]},
  "run_knobs": {"block": [4, 8, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "ADV_STRIPS": 3, "block": 8},
  "valid": ["head_dim % 16 == 0", "head_dim <= 256", "ADV_V == 32 and ADV_M * ADV_N == 12 or ADV_V == 64 and ADV_M * ADV_N == 24"],
  "reads": "batch * n * (head_dim * (4 * heads + 4 * kv_heads) + 3 * heads)", "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + 2 * heads)", "atomics": "0",
  "mapping": "strips of ADV_STRIPS * ADV_N vectors of query rows, handed out one by one, head by head, the longest first, one wave of heads after the other; merging shared evenly", "rank": 10
} */
#include <omp.h>

#ifndef ADV_STRIPS
#define ADV_STRIPS 3 /* tiles side by side in one strip of query rows: rows that gk and gv are loaded and stored for */
#endif
#define STRIPS ADV_STRIPS

#include "partial.h"
#include "statistics.h"

static void one_strip(const Call *c, int64_t h, int64_t first, void *scratch, real *gk, real *gv) {
    Adder a = adder_in(scratch, c->block);
    Head head = head_of(c, h);
    int64_t rows = least(WIDE, c->n - first);
    pack(head.q + first * ADV_D, rows, score_scale() * LOG2_E, a.q);
    pack(head.gout + first * ADV_D, rows, score_scale(), a.gout);
    add_packed_strip(&head, first, &a, c->gq + h * c->size, gk, gv);
}

int64_t backward_partial_workspace(const int64_t *dims, int threads) {
    return statistics_bytes(dims) + sums_bytes(dims, threads) + threads * adder_bytes(dims[6] * ADV_M);
}

/* buffers: q, k, v, out, lse, gout, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
int backward_partial(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1) return 1;
    Call c = backward_call(buffers, dims, workspace);
    char *others = (char *)workspace + statistics_bytes(dims), *scratch = others + sums_bytes(dims, threads);
    int64_t wave = wave_of(dims, threads);
#pragma omp parallel num_threads(threads)
    {
        void *mine = scratch + omp_get_thread_num() * adder_bytes(c.block);
        statistics(&c, (const real *)buffers[4]);
        add_in_waves(&c, wave, others, mine, threads, one_strip);
    }
    return 0;
}
