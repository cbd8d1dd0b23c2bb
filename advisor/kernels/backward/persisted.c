/* variant {
  "idea": "register tiles, each score computed once: the owner of a strip of key rows leaves GS in memory, from which the owners of query rows make gq",
  "language": "c", "symbol": "backward_persisted", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3], "ADV_STRIPS": [1, 3]},
  "run_knobs": {"block": [4, 8, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "ADV_STRIPS": 3, "block": 8},
  "valid": ["head_dim % 16 == 0", "head_dim <= 256", "ADV_V == 32 and ADV_M * ADV_N == 12 or ADV_V == 64 and ADV_M * ADV_N == 24"],
  "reads": "batch * n * (head_dim * (4 * heads + 3 * kv_heads) + 3 * heads) + batch * heads * (n * n * (2 - causal) + n * causal) // 2", "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + 2 * heads) + batch * heads * (n * n * (2 - causal) + n * causal) // 2", "atomics": "0",
  "mapping": "strips of ADV_STRIPS * ADV_N vectors of key rows, then blocks of query rows, handed out one by one, head by head, the longest first, one wave of heads after the other", "rank": 15
} */
#include <omp.h>

#ifndef ADV_STRIPS
#define ADV_STRIPS 3 /* tiles side by side in one strip of key rows: rows of k that gq is loaded and stored for */
#endif
#define STRIPS ADV_STRIPS

#include "owners.h"
#include "statistics.h"

#define STRIPS_A_THREAD 16 /* strips a wave has for each thread: waiting for the last one costs 3 %, memory stays small */

/* GS of one query head: a panel [n][WIDE] for each strip of key rows. */
INLINE int64_t panels_size(const Call *c) { return strips_of(c->n) * c->n * WIDE; }

static void key_strip(const Call *c, int64_t unit, int64_t strip, real *panels, void *scratch) {
    Owner o = owner_in(scratch, c->block);
    int64_t first = strip * WIDE;
    Head head = head_of(c, unit * c->sharing);
    pack_keys(&head, first, &o);
    for (int64_t s = 0; s < c->sharing; s++) {
        head = head_of(c, unit * c->sharing + s);
        add_queries(&head, first, &o, panels + s * panels_size(c) + strip * c->n * WIDE);
    }
    unpack_keys(&head, first, &o, c->gk + unit * c->size, c->gv + unit * c->size);
}

/* gq of one block of query rows: over the panels, whose rows above their first key row (causal) nobody wrote. */
static void query_block(const Call *c, int64_t h, int64_t first, const real *panels) {
    Head head = head_of(c, h);
    int64_t end = least(first + c->block, c->n), seen = c->causal ? end : c->n;
    real *gq = c->gq + h * c->size;
    memset(gq + first * ADV_D, 0, (end - first) * ADV_D * sizeof(real));
    for (int64_t j = 0; j < seen; j += WIDE) {
        int64_t from = c->causal ? most_of(first, j) : first;
        Left gs = {panels + (j * c->n + from * WIDE), WIDE, 1};
        along(gs, end - from, head.k + j * ADV_D, least(WIDE, c->n - j), gq + from * ADV_D);
    }
}

static int64_t wave_in(const int64_t *dims, int threads) {
    int64_t strips = strips_of(dims[5]);
    return least(dims[0] * dims[2], (STRIPS_A_THREAD * threads + strips - 1) / strips);
}

static int64_t panels_bytes(const int64_t *dims, int threads) {
    return bytes_of(wave_in(dims, threads) * (dims[1] / dims[2]) * padded(dims[5]) * dims[5]);
}

static void one_wave(const Call *c, int64_t unit, int64_t units, real *panels, void *scratch) {
    int64_t strips = strips_of(c->n), blocks = (c->n + c->block - 1) / c->block, heads = units * c->sharing;
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < units * strips; task++) {
        int64_t u = task / strips;
        key_strip(c, unit + u, task % strips, panels + u * c->sharing * panels_size(c), scratch);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < heads * blocks; task++) {
        int64_t h = task / blocks, first = (blocks - 1 - task % blocks) * c->block;
        query_block(c, unit * c->sharing + h, first, panels + h * panels_size(c));
    }
}

int64_t backward_persisted_workspace(const int64_t *dims, int threads) {
    return statistics_bytes(dims) + panels_bytes(dims, threads) + threads * owner_bytes(dims[6] * ADV_M);
}

/* buffers: q, k, v, out, lse, gout, gq, gk, gv. dims: batch, heads, kv_heads, head_dim, causal, n, block (in tiles). */
int backward_persisted(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1) return 1;
    Call c = backward_call(buffers, dims, workspace);
    char *panels = (char *)workspace + statistics_bytes(dims), *scratch = panels + panels_bytes(dims, threads);
    int64_t wave = wave_in(dims, threads);
#pragma omp parallel num_threads(threads)
    {
        void *mine = scratch + omp_get_thread_num() * owner_bytes(c.block);
        statistics(&c, (const real *)buffers[4]);
        for (int64_t unit = 0; unit < c.units; unit += wave)
            one_wave(&c, unit, least(wave, c.units - unit), (real *)panels, mine);
    }
    return 0;
}
