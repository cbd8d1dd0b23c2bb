/* variant {
  "idea": "split over cache rows too, so that all threads work at any batch: online softmax, merged by the last one",
  "language": "c", "symbol": "decode_split", "dtypes": ["float32", "float64", "bfloat16", "float16"], "requires": [],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_R": [4, 8]},
  "run_knobs": {"block": [16, 64, 128, 512], "ahead": [0, 16]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_R": 8, "block": 128, "ahead": 16},
  "valid": ["head_dim % (ADV_V // 4) == 0", "head_dim <= 512"],
  "reads": "batch * heads * (head_dim + 2 * n * head_dim)", "writes": "batch * heads * head_dim",
  "atomics": "0",
  "mapping": "rows of all query heads laid end to end, equal contiguous shares a thread; one counter update a part",
  "rank": 20
} */
#include "team.h"

#ifndef ADV_R
#define ADV_R 8 /* rows of K at once, a multiple of 4: that many independent sums hide the latency of an FMA */
#endif

#define MOST_ROWS 512
#define CHUNKS (ADV_D / W) /* vectors of one row */

/* Vectors of `out` held in registers over a block's rows: all of the row, or its largest part that fits and divides. */
#define FITS(c) (CHUNKS % (c) == 0)
#define AT_MOST_5 (FITS(5) ? 5 : FITS(4) ? 4 : FITS(3) ? 3 : FITS(2) ? 2 : 1)
#define AT_MOST_12 (FITS(12) ? 12 : FITS(10) ? 10 : FITS(8) ? 8 : FITS(7) ? 7 : FITS(6) ? 6 : AT_MOST_5)
#define COLUMNS (CHUNKS <= 12 ? CHUNKS : AT_MOST_12)
/* Rows at once in the second half, each with its own sums: eight chains of FMA or more. */
#define PAIRED (COLUMNS >= 8 ? 1 : COLUMNS >= 4 ? 2 : 4)

/* Scores of ADV_R rows. */
INLINE void score_rows(const real *q, const stored *k, real *s) {
    vec a[ADV_R];
    vec first = load(q);
    UNROLL for (int r = 0; r < ADV_R; r++) a[r] = first * widen(k + r * ADV_D);
    UNROLL for (int x = W; x < ADV_D; x += W) {
        vec qx = load(q + x);
        UNROLL for (int r = 0; r < ADV_R; r++) a[r] += qx * widen(k + r * ADV_D + x);
    }
    UNROLL for (int r = 0; r < ADV_R; r += 4) sum4(a[r], a[r + 1], a[r + 2], a[r + 3], s + r);
}

INLINE real score_row(const real *q, const stored *k) {
    vec a = load(q) * widen(k);
    for (int x = W; x < ADV_D; x += W) a += load(q + x) * widen(k + x);
    return lanes_sum(a);
}

/* Scores of a block. The last rows are done with those before them again, rather than one by one. */
static void score_block(const real *q, const stored *k, const stored *v, real *s, int64_t rows, int64_t ahead) {
    int64_t j = 0;
    for (; j + ADV_R <= rows; j += ADV_R) {
        if (ahead) fetch(k, v, j, rows, ahead, ADV_R);
        score_rows(q, k + j * ADV_D, s + j);
    }
    if (j == rows) return;
    if (rows >= ADV_R) {
        score_rows(q, k + (rows - ADV_R) * ADV_D, s + rows - ADV_R);
        return;
    }
    for (; j < rows; j++) s[j] = score_row(q, k + j * ADV_D);
}

/* Adds p [rows] times v [rows][d] to COLUMNS vectors of acc. */
INLINE void add_columns(const real *p, const stored *v, real *acc, int64_t rows, const stored *next, int64_t ahead) {
    vec a[PAIRED][COLUMNS];
    UNROLL for (int x = 0; x < COLUMNS; x++) {
        a[0][x] = load(acc + x * W);
        UNROLL for (int r = 1; r < PAIRED; r++) a[r][x] = (vec){0};
    }
    int64_t j = 0;
    for (; j + PAIRED <= rows; j += PAIRED) {
        if (ahead) fetch(v, next, j, rows, ahead, PAIRED);
        UNROLL for (int r = 0; r < PAIRED; r++) {
            vec w = spread(p[j + r]);
            UNROLL for (int x = 0; x < COLUMNS; x++) a[r][x] += w * widen(v + (j + r) * ADV_D + x * W);
        }
    }
    for (; j < rows; j++) {
        vec w = spread(p[j]);
        UNROLL for (int x = 0; x < COLUMNS; x++) a[0][x] += w * widen(v + j * ADV_D + x * W);
    }
    UNROLL for (int x = 0; x < COLUMNS; x++) {
        UNROLL for (int r = 1; r < PAIRED; r++) a[0][x] += a[r][x];
        store(acc + x * W, a[0][x]);
    }
}

static void add_block(const real *p, const stored *v, real *acc, int64_t rows, const stored *next, int64_t ahead) {
    for (int x = 0; x < ADV_D; x += COLUMNS * W)
        add_columns(p, v + x, acc + x, rows, next, x == 0 ? ahead : 0);
}

static void attend(const Decode *decode, int64_t unit, int64_t from, int64_t to, real *part) {
    const stored *k = decode->k + unit / decode->sharing * decode->n * ADV_D;
    const stored *v = decode->v + unit / decode->sharing * decode->n * ADV_D;
    real q[ADV_D], s[MOST_ROWS];
    for (int d = 0; d < ADV_D; d++) q[d] = decode->q[unit * ADV_D + d] * decode->scale;
    memset(part, 0, ADV_D * sizeof(real));
    real most = LOWEST;
    vec total = {0};
    for (int64_t j = from; j < to; j += decode->block) {
        int64_t rows = to - j < decode->block ? to - j : decode->block;
        score_block(q, k + j * ADV_D, v + j * ADV_D, s, rows, decode->ahead);
        real shrink = weigh(s, rows, &most, &total);
        if (shrink != 1)
            for (int d = 0; d < ADV_D; d++) part[d] *= shrink;
        add_block(s, v + j * ADV_D, part, rows, k + (j + rows) * ADV_D, decode->ahead);
    }
    part[MAXIMUM] = most;
    part[TOTAL] = lanes_sum(total);
}

int64_t decode_split_workspace(const int64_t *dims, int threads) { return team_bytes(dims[0] * dims[1], 1, threads); }

/* buffers: q [b][h][d], k and v [b][g][n][d], out [b][h][d].
   dims: batch, heads, kv_heads, head_dim, n, block, ahead. */
int decode_split(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[5] < 1 || dims[5] > MOST_ROWS) return 1;
    Decode decode = {.q = buffers[0], .k = buffers[1], .v = buffers[2], .out = buffers[3], .units = dims[0] * dims[1],
                     .n = dims[4], .heads = 1, .sharing = dims[1] / dims[2], .block = dims[5], .ahead = dims[6],
                     .scale = LOG2_E / (real)sqrt(ADV_D), .workspace = workspace};
    do_line(&decode, threads, attend);
    return 0;
}
