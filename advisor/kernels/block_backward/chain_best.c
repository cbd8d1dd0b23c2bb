/* variant {
  "idea": "the chain of the best parts: register tiles for every product, forward again with row statistics kept, from which attention's gradients are made with owners; every step's result in memory",
  "language": "c", "symbol": "block_backward_chain_best", "dtypes": ["float32", "float64"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_M": [4, 6, 8, 12], "ADV_N": [2, 3], "ADV_U": [4]},
  "run_knobs": {"block": [48, 96, 192], "group": [1, 4, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}},
  "defaults": {"ADV_V": 32, "ADV_M": 6, "ADV_N": 2, "ADV_U": 4, "block": 96, "group": 4},
  "valid": ["head_dim <= 256", "ADV_M * ADV_N * 32 == 12 * ADV_V"],
  "reads": "batch * n * (18 * d_model + 15 * heads * head_dim + 14 * kv_heads * head_dim + 5 * d_ff) + d_model * (4 * (heads + kv_heads) * head_dim + 5 * d_ff)",
  "writes": "batch * n * (7 * d_model + 8 * heads * head_dim + 8 * kv_heads * head_dim + 3 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "mapping": "blocks of rows of each result times groups of panels, and strips of rows of attention, handed out one by one", "rank": 10
} */
#include "steps.h"

int64_t block_backward_chain_best_workspace(const int64_t *dims, int threads) {
    Layer l = layer_of(dims);
    Cut cut = cut_of(&l, dims);
    return cut_numbers(&cut, threads) * REAL_BYTES;
}

static void forward(const Block *c, const Cut *cut, real *own) {
    const Layer *l = &c->l;
    real *const *r = cut->r;
    Heads outs = {r[OUT], 0, 0};
    norm_rows(l, c->x, c->g1, r[NORMAL]);
    make(cut, (Sum){{r[NORMAL], l->d, 1}, {c->wqkv, 1, l->d, l->all}, l->rows, l->d, .to = r[QKV]}, own);
    split_rows(l, r[QKV], l->all, &cut->heads);
    attend(l, cut, own);
    join_rows(l, &outs, l->own, r[MIXED]);
    make(cut, (Sum){{r[MIXED], l->own, 1}, {c->wo, 1, l->own, l->d}, l->rows, l->own, .to = r[MIDDLE], .plus = c->x},
         own);
    norm_rows(l, r[MIDDLE], c->g2, r[NORMAL_2]);
}

/* From gy to the gradient of m. */
static void mlp_back(const Block *c, const Cut *cut, real *own, int threads) {
    const Layer *l = &c->l;
    real *const *r = cut->r;
    Right wg = {c->wg, l->d, 1, l->d}, wu = {c->wu, l->d, 1, l->d};
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks_of(cut, l->rows, l->f); task++) within_task(c, cut, task, own);
    make(cut, (Sum){{r[GA], l->f, 1}, wg, l->rows, l->f, r[G_NORMAL], 0, {r[GB], l->f, 1}, wu}, own);
    make_weight(cut, l, r[GA], l->f, r[NORMAL_2], l->d, c->gwg, own);
    make_weight(cut, l, r[GB], l->f, r[NORMAL_2], l->d, c->gwu, own);
    make_weight(cut, l, c->gy, l->d, r[H], l->f, c->gwd, own);
    norm_back(l, cut, r[MIDDLE], c->g2, c->gy, r[G_MIDDLE], c->gg2, threads);
}

/* From there to gx. */
static void mixing_back(const Block *c, const Cut *cut, real *own, int threads) {
    const Layer *l = &c->l;
    real *const *r = cut->r;
    Heads gouts = {r[G_OUT], 0, 0};
    make(cut, (Sum){{r[G_MIDDLE], l->d, 1}, {c->wo, l->own, 1, l->own}, l->rows, l->d, .to = r[G_MIXED]}, own);
    make_weight(cut, l, r[G_MIDDLE], l->d, r[MIXED], l->own, c->gwo, own);
    split_rows(l, r[G_MIXED], l->own, &gouts);
    deltas(l, cut);
    attention_back(l, cut, own);
    join_rows(l, &cut->gradients, l->all, r[G_QKV]);
    make(cut, (Sum){{r[G_QKV], l->all, 1}, {c->wqkv, l->d, 1, l->d}, l->rows, l->all, .to = r[G_NORMAL]}, own);
    make_weight(cut, l, r[G_QKV], l->all, r[NORMAL], l->d, c->gwqkv, own);
    norm_back(l, cut, c->x, c->g1, r[G_MIDDLE], c->gx, c->gg1, threads);
}

/* dims: those of a layer, then block: rows at once, and group: panels at once. */
int block_backward_chain_best(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D) return 1;
    Block c = block_of(buffers, dims);
    Cut cut = cut_of(&c.l, dims);
    place_cut(&c.l, &cut, (real *)workspace);
#pragma omp parallel num_threads(threads)
    {
        real *own = cut.scratch + omp_get_thread_num() * cut.own;
        forward(&c, &cut, own);
        mlp_back(&c, &cut, own, threads);
        mixing_back(&c, &cut, own, threads);
    }
    return 0;
}
