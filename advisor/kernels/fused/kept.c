/* variant {
  "idea": "register tiles; the weights of one strip of query rows stay in its thread's cache between forward and backward: each score and exponential once, nothing of order n^2 in memory",
  "language": "c", "symbol": "fused_kept", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3], "ADV_STRIPS": [1, 3]},
  "run_knobs": {"block": [4, 8, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "ADV_STRIPS": 3, "block": 8},
  "valid": ["head_dim % 16 == 0", "head_dim <= 256", "ADV_V == 32 and ADV_M * ADV_N == 12 or ADV_V == 64 and ADV_M * ADV_N == 24"],
  "reads": "2 * batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "2 * batch * n * head_dim * (heads + kv_heads)", "atomics": "0",
  "mapping": "strips of ADV_STRIPS * ADV_N vectors of query rows, handed out one by one, head by head, the longest first, one wave of heads after the other; merging shared evenly", "rank": 10
} */
#include <omp.h>

#ifndef ADV_STRIPS
#define ADV_STRIPS 3 /* tiles side by side in one strip of query rows: rows that gk and gv are loaded and stored for */
#endif
#define STRIPS ADV_STRIPS

#include "kept.h"

/* A thread's scratch: that of kept.h, then the weights [n][WIDE] of one strip. */
static int64_t scratch_bytes(int64_t n, int64_t block) { return keeper_bytes(block) + bytes_of(n * WIDE); }

static void one_strip(const Call *c, int64_t h, int64_t first, void *scratch, real *gk, real *gv) {
    Keeper t = keeper_in(scratch, c->block);
    Head head = head_of(c, h);
    real *p = (real *)((char *)scratch + keeper_bytes(c->block)), *out = c->out + h * c->size;
    attend_kept(&head, first, &t, p, t.part, out);
    add_kept_strip(&head, first, &t, p, t.part, out, c->gq + h * c->size, gk, gv);
}

/* No row statistics here: the weights themselves are kept, so the workspace begins with the sums. */
int64_t fused_kept_workspace(const int64_t *dims, int threads) {
    return sums_bytes(dims, threads) + threads * scratch_bytes(dims[5], dims[6] * ADV_M);
}

/* buffers: q, k, v, gout, out, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
int fused_kept(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1) return 1;
    Call c = fused_call(buffers, dims, workspace);
    char *scratch = (char *)workspace + sums_bytes(dims, threads);
    int64_t wave = wave_of(dims, threads);
#pragma omp parallel num_threads(threads)
    {
        void *mine = scratch + omp_get_thread_num() * scratch_bytes(c.n, c.block);
        add_in_waves(&c, wave, workspace, mine, threads, one_strip);
    }
    return 0;
}
