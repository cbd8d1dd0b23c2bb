/* variant {
  "idea": "register tiles without P and without sums between threads: a strip of query rows goes forward and makes its gq, then strips of key rows make gk and gv",
  "language": "c", "symbol": "fused_owners", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3]},
  "run_knobs": {"block": [4, 8, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "block": 8},
  "valid": ["head_dim <= 256", "ADV_V == 32 and ADV_M * ADV_N == 12 or ADV_V == 64 and ADV_M * ADV_N == 24"],
  "reads": "batch * n * (head_dim * (4 * heads + 6 * kv_heads) + 2 * heads)", "writes": "batch * n * (2 * head_dim * (heads + kv_heads) + 2 * heads)", "atomics": "0",
  "mapping": "strips of ADV_N vectors of query rows, then of key rows, of all heads, handed out one by one, head by head, the longest first", "rank": 20
} */
#include <omp.h>

#include "attend.h"
#include "owners.h"

static void query_strip(const Call *c, int64_t h, int64_t first, void *scratch) {
    Owner o = owner_in(scratch, c->block);
    Head head = head_of(c, h);
    int64_t rows = least(WIDE, c->n - first);
    pack(head.q + first * ADV_D, rows, score_scale() * LOG2_E, o.a);
    pack(head.gout + first * ADV_D, rows, score_scale(), o.b);
    attend_packed(c, h, first, o.a, o.to_a, o.s);
    own_packed_queries(&head, first, &o, c->gq + h * c->size);
}

static void key_strip(const Call *c, int64_t g, int64_t first, void *scratch) {
    Owner o = owner_in(scratch, c->block);
    Head head = head_of(c, g * c->sharing);
    pack_keys(&head, first, &o);
    for (int64_t h = g * c->sharing; h < (g + 1) * c->sharing; h++) {
        head = head_of(c, h);
        add_queries(&head, first, &o, 0);
    }
    unpack_keys(&head, first, &o, c->gk + g * c->size, c->gv + g * c->size);
}

int64_t fused_owners_workspace(const int64_t *dims, int threads) {
    return statistics_bytes(dims) + threads * owner_bytes(dims[6] * ADV_M);
}

/* buffers: q, k, v, gout, out, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
int fused_owners(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1) return 1;
    Call c = fused_call(buffers, dims, workspace);
    char *scratch = (char *)workspace + statistics_bytes(dims);
    int64_t strips = strips_of(c.n);
#pragma omp parallel num_threads(threads)
    {
        void *mine = scratch + omp_get_thread_num() * owner_bytes(c.block);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < c.heads * strips; task++)
            query_strip(&c, task / strips, (strips - 1 - task % strips) * WIDE, mine);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < c.units * strips; task++)
            key_strip(&c, task / strips, task % strips * WIDE, mine);
    }
    return 0;
}
