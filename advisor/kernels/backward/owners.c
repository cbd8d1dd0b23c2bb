/* variant {
  "idea": "register tiles: strips of rows lie across the lanes; a strip of query rows owns gq, a strip of key rows owns gk and gv, scores are computed for both",
  "language": "c", "symbol": "backward_owners", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3]},
  "run_knobs": {"block": [4, 8, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 8},
  "valid": ["head_dim <= 256", "ADV_V == 32 and ADV_M * ADV_N == 12 or ADV_V == 64 and ADV_M * ADV_N == 24"],
  "reads": "batch * n * (head_dim * (5 * heads + 4 * kv_heads) + 5 * heads)", "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + 2 * heads)", "atomics": "0",
  "mapping": "strips of ADV_N vectors of key rows, then of query rows, of all heads, handed out one by one, head by head, the longest first", "rank": 20
} */
#include <omp.h>

#include "owners.h"
#include "statistics.h"

static void one_strip(const Call *c, int64_t task, void *scratch) {
    Owner o = owner_in(scratch, c->block);
    int64_t strips = strips_of(c->n), of_keys = c->units * strips;
    if (task >= of_keys) {
        int64_t h = (task - of_keys) / strips, first = (strips - 1 - (task - of_keys) % strips) * WIDE;
        Head head = head_of(c, h);
        own_queries(&head, first, &o, c->gq + h * c->size);
        return;
    }
    int64_t g = task / strips, first = task % strips * WIDE;
    Head head = head_of(c, g * c->sharing);
    pack_keys(&head, first, &o);
    for (int64_t h = g * c->sharing; h < (g + 1) * c->sharing; h++) {
        head = head_of(c, h);
        add_queries(&head, first, &o, 0);
    }
    unpack_keys(&head, first, &o, c->gk + g * c->size, c->gv + g * c->size);
}

int64_t backward_owners_workspace(const int64_t *dims, int threads) {
    return statistics_bytes(dims) + threads * owner_bytes(dims[6] * ADV_M);
}

/* buffers: q, k, v, out, lse, gout, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
int backward_owners(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1) return 1;
    Call c = backward_call(buffers, dims, workspace);
    char *scratch = (char *)workspace + statistics_bytes(dims);
    int64_t tasks = (c.units + c.heads) * strips_of(c.n);
#pragma omp parallel num_threads(threads)
    {
        statistics(&c, (const real *)buffers[4]);
        void *mine = scratch + omp_get_thread_num() * owner_bytes(c.block);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < tasks; task++) one_strip(&c, task, mine);
    }
    return 0;
}
