/* variant {
  "idea": "the chain of the naive kernels: one step after the other as the formula reads, every result through memory",
  "language": "c", "symbol": "block_chain_naive", "dtypes": ["float32", "float64"], "requires": [],
  "reads": "batch * n * (7 * d_model + 4 * heads * head_dim + 4 * kv_heads * head_dim + 3 * d_ff) + batch * n * d_model * ((2 * heads + 2 * kv_heads) * head_dim + 3 * d_ff)",
  "writes": "batch * n * (4 * d_model + 4 * heads * head_dim + 4 * kv_heads * head_dim + 3 * d_ff)",
  "mapping": "equal contiguous rows a thread in every pass; query rows of attention 8 at a time", "rank": 90
} */
#include <omp.h>

#include "layer_plain.h"
#include "sizes.h"

#include "call.h"

/* Rows of all steps: normal [d], qkv [p], then the heads of them, out by heads and by rows, a, b [f]. */
static int64_t rows_numbers(const Layer *l) { return l->rows * (l->d + 2 * l->all + 2 * l->own + 2 * l->f); }

int64_t block_chain_naive_workspace(const int64_t *dims, int threads) {
    Layer l = layer_of(dims);
    return (lines_of(rows_numbers(&l)) + threads * lines_of(l.n)) * (int64_t)sizeof(real);
}

static void gate(const Layer *l, real *a, const real *b) {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < l->rows * l->f; k++) a[k] = a[k] * sigmoid(a[k]) * b[k];
}

int block_chain_naive(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    Block c = block_of(buffers, dims);
    const Layer *l = &c.l;
    real *normal = (real *)workspace, *qkv = normal + l->rows * l->d, *by_heads = qkv + l->rows * l->all;
    real *out = by_heads + l->rows * l->all, *mixed = out + l->rows * l->own;
    real *a = mixed + l->rows * l->own, *b = a + l->rows * l->f, *scores = (real *)workspace + lines_of(rows_numbers(l));
    Heads heads = heads_in(l, by_heads), outs = {out, 0, 0};
#pragma omp parallel num_threads(threads)
    {
        plain_norm(l, c.x, c.g1, normal);
        plain_product(normal, l->rows, l->d, c.wqkv, l->all, 0, qkv);
        plain_split(l, qkv, l->all, &heads);
        plain_attention(l, &heads, out, 0, scores + omp_get_thread_num() * lines_of(l->n));
        plain_join(l, &outs, l->own, mixed);
        plain_product(mixed, l->rows, l->own, c.wo, l->d, c.x, c.y);
        plain_norm(l, c.y, c.g2, normal);
        plain_product(normal, l->rows, l->d, c.wg, l->f, 0, a);
        plain_product(normal, l->rows, l->d, c.wu, l->f, 0, b);
        gate(l, a, b);
        plain_product(a, l->rows, l->f, c.wd, l->d, c.y, c.y);
    }
    return 0;
}
