/* variant {
  "idea": "naive with register tiles: forward of all heads with all weights kept in memory, then backward from them; what fusing must beat",
  "language": "c", "symbol": "fused_pair", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3], "ADV_STRIPS": [1, 3]},
  "run_knobs": {"block": [4, 8, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "ADV_STRIPS": 3, "block": 8},
  "valid": ["head_dim % 16 == 0", "head_dim <= 256", "ADV_V == 32 and ADV_M * ADV_N == 12 or ADV_V == 64 and ADV_M * ADV_N == 24"],
  "reads": "batch * n * head_dim * (4 * heads + 4 * kv_heads) + batch * heads * (n * n * (2 - causal) + n * causal) // 2", "writes": "2 * batch * n * head_dim * (heads + kv_heads) + batch * heads * (n * n * (2 - causal) + n * causal) // 2", "atomics": "0",
  "mapping": "strips of ADV_STRIPS * ADV_N vectors of query rows, handed out one by one, head by head, the longest first, forward of all heads, then backward of one wave of heads after the other", "rank": 70
} */
#include <omp.h>

#ifndef ADV_STRIPS
#define ADV_STRIPS 3 /* tiles side by side in one strip of query rows: rows that gk and gv are loaded and stored for */
#endif
#define STRIPS ADV_STRIPS

#include "kept.h"

/* The weights [n][WIDE] of a strip; strips follow each other, head by head, behind the statistics. */
static real *weights_of(const Call *c, int64_t h, int64_t first) {
    real *start = (real *)((char *)c->lse + 2 * bytes_of(c->heads * padded(c->n)));
    return start + (h * padded(c->n) + first) * c->n;
}

static int64_t weights_bytes(const int64_t *dims) { return bytes_of(dims[0] * dims[1] * padded(dims[5]) * dims[5]); }

/* 1 / total of each query row is what lse has room for here: the kept weights need no lse. */
static void forward_strip(const Call *c, int64_t h, int64_t first, void *scratch) {
    Keeper t = keeper_in(scratch, c->block);
    Head head = head_of(c, h);
    real *part = c->lse + h * padded(c->n) + first;
    attend_kept(&head, first, &t, weights_of(c, h, first), part, c->out + h * c->size);
}

static void one_strip(const Call *c, int64_t h, int64_t first, void *scratch, real *gk, real *gv) {
    Keeper t = keeper_in(scratch, c->block);
    Head head = head_of(c, h);
    add_kept_strip(&head, first, &t, weights_of(c, h, first), head.lse + first, c->out + h * c->size,
                   c->gq + h * c->size, gk, gv);
}

int64_t fused_pair_workspace(const int64_t *dims, int threads) {
    return statistics_bytes(dims) + weights_bytes(dims) + sums_bytes(dims, threads) + threads * keeper_bytes(dims[6] * ADV_M);
}

/* buffers: q, k, v, gout, out, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
int fused_pair(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1) return 1;
    Call c = fused_call(buffers, dims, workspace);
    char *others = (char *)workspace + statistics_bytes(dims) + weights_bytes(dims);
    char *scratch = others + sums_bytes(dims, threads);
    int64_t wave = wave_of(dims, threads), strips = strips_of(c.n);
#pragma omp parallel num_threads(threads)
    {
        void *mine = scratch + omp_get_thread_num() * keeper_bytes(c.block);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < c.heads * strips; task++)
            forward_strip(&c, task / strips, (strips - 1 - task % strips) * WIDE, mine);
        add_in_waves(&c, wave, others, mine, threads, one_strip);
    }
    return 0;
}
