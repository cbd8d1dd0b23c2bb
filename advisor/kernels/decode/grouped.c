/* variant {
  "idea": "one pass over a block of the cache serves all query heads that share it, in tiles of heads and rows",
  "language": "c", "symbol": "decode_grouped", "dtypes": ["float32", "float64", "bfloat16", "float16"], "requires": [],
  "macros": {"ADV_D": "head_dim", "ADV_G": "heads // kv_heads"},
  "build_knobs": {"ADV_V": [32, 64], "ADV_H": [2, 4]},
  "run_knobs": {"block": [16, 32, 64], "fetch": [0, 1]},
  "needs": {"ADV_V": {"64": ["avx512f"]}}, "defaults": {"ADV_V": 32, "ADV_H": 2, "block": 16, "fetch": 1},
  "valid": ["head_dim % 16 == 0", "head_dim <= 512", "heads // kv_heads >= 2", "heads // kv_heads <= 64"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
  "atomics": "0",
  "mapping": "rows of all caches laid end to end, equal contiguous shares a thread; one counter update a part",
  "rank": 10
} */
#include "team.h"

#ifndef ADV_G
#define ADV_G 4 /* query heads that share one cache */
#endif
#ifndef ADV_H
#define ADV_H 2 /* most query heads in one register tile */
#endif

#define MOST_ROWS 128
#define CHUNKS (ADV_D / W) /* vectors of one row */
#define STEP (ADV_D % LINE ? 16 : LINE) /* numbers of a row that are done between two requests for memory */
#define ROWS 4                 /* rows of K in one tile: as many as sum4 takes */

/* Tiles of nearly equal height: G = 7 with at most 4 heads is 4 + 3, G = 5 with at most 4 is 3 + 2. */
#define TILES ((ADV_G + ADV_H - 1) / ADV_H)
#define TALL ((ADV_G + TILES - 1) / TILES) /* heads of the taller tiles */
#define SHORT (TALL > 1 ? TALL - 1 : 1)
#define TALL_TILES (ADV_G - (TALL - 1) * TILES)

/* Vectors of `out` a head in a tile of t heads: sums, weights and one row vector fit the registers. */
#define FITS(t, c) (CHUNKS % (c) == 0 && (t) * (c) + (t) + 1 <= REGISTERS)
#define AT_MOST_4(t) (FITS(t, 4) ? 4 : FITS(t, 3) ? 3 : FITS(t, 2) ? 2 : 1)
#define COLUMNS(t) (FITS(t, 8) ? 8 : FITS(t, 6) ? 6 : FITS(t, 5) ? 5 : AT_MOST_4(t))

/* Scores of `heads` heads on ROWS rows: s [heads][MOST_ROWS]. */
INLINE void score_tile(const int heads, const real *q, const stored *k, real *s, const stored *next) {
    vec a[TALL][ROWS];
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int r = 0; r < ROWS; r++) a[h][r] = (vec){0};
    for (int line = 0; line < ADV_D; line += STEP) {
        if (next) UNROLL for (int r = 0; r < ROWS; r++) __builtin_prefetch(next + r * ADV_D + line);
        UNROLL for (int x = line; x < line + STEP; x += W) {
            vec qx[TALL];
            UNROLL for (int h = 0; h < heads; h++) qx[h] = held(load(q + h * ADV_D + x));
            UNROLL for (int r = 0; r < ROWS; r++) {
                vec kx = held(widen(k + r * ADV_D + x));
                UNROLL for (int h = 0; h < heads; h++) a[h][r] += qx[h] * kx;
            }
        }
    }
    UNROLL for (int h = 0; h < heads; h++) sum4(a[h][0], a[h][1], a[h][2], a[h][3], s + h * MOST_ROWS);
}

/* Scores of all heads on ROWS rows. The first tile asks for as many rows of what is read after this block. */
INLINE void score_rows(const real *q, const stored *k, real *s, const stored *next) {
    score_tile(TALL, q, k, s, next);
    for (int t = 1; t < TALL_TILES; t++) score_tile(TALL, q + t * TALL * ADV_D, k, s + t * TALL * MOST_ROWS, 0);
    for (int t = 0; t < TILES - TALL_TILES; t++) {
        int h = TALL_TILES * TALL + t * SHORT;
        score_tile(SHORT, q + h * ADV_D, k, s + h * MOST_ROWS, 0);
    }
}

/* next: the block that is read after this one, to be asked for meanwhile; NULL: do not ask. */
static void score_block(const real *q, const stored *k, real *s, int64_t rows, const stored *next) {
    int64_t j = 0;
    if (next)
        for (; j + ROWS <= rows; j += ROWS) score_rows(q, k + j * ADV_D, s + j, next + j * ADV_D);
    else
        for (; j + ROWS <= rows; j += ROWS) score_rows(q, k + j * ADV_D, s + j, 0);
    if (j == rows) return;
    if (rows >= ROWS) {
        score_rows(q, k + (rows - ROWS) * ADV_D, s + rows - ROWS, 0);
        return;
    }
    for (; j < rows; j++)
        for (int h = 0; h < ADV_G; h++) {
            vec a = {0};
            for (int x = 0; x < ADV_D; x += W) a += load(q + h * ADV_D + x) * widen(k + j * ADV_D + x);
            s[h * MOST_ROWS + j] = lanes_sum(a);
        }
}

/* Adds p [heads][rows] times v [rows][d] to COLUMNS vectors of each head's part. */
INLINE void add_tile(const int heads, const real *p, const stored *v, real *part, int64_t rows,
                     const stored *next) {
    enum { MOST = REGISTERS };
    const int columns = heads == TALL ? COLUMNS(TALL) : COLUMNS(SHORT);
    vec a[TALL][MOST];
    UNROLL for (int h = 0; h < heads; h++)
        UNROLL for (int x = 0; x < columns; x++) a[h][x] = load(part + h * SLOT + x * W);
    for (int64_t j = 0; j < rows; j++) {
        if (next) UNROLL for (int x = 0; x < columns * W; x += LINE) __builtin_prefetch(next + j * ADV_D + x);
        vec w[TALL];
        UNROLL for (int h = 0; h < heads; h++) w[h] = spread(p[h * MOST_ROWS + j]);
        UNROLL for (int x = 0; x < columns; x++) {
            vec vx = held(widen(v + j * ADV_D + x * W));
            UNROLL for (int h = 0; h < heads; h++) a[h][x] += w[h] * vx;
        }
    }
    UNROLL for (int h = 0; h < heads; h++)
        UNROLL for (int x = 0; x < columns; x++) store(part + h * SLOT + x * W, a[h][x]);
}

static void add_block(const real *p, const stored *v, real *part, int64_t rows, const stored *next) {
    for (int x = 0; x < ADV_D; x += COLUMNS(TALL) * W) {
        if (next)
            add_tile(TALL, p, v + x, part + x, rows, next + x);
        else
            add_tile(TALL, p, v + x, part + x, rows, 0);
        for (int t = 1; t < TALL_TILES; t++)
            add_tile(TALL, p + t * TALL * MOST_ROWS, v + x, part + t * TALL * SLOT + x, rows, 0);
    }
    for (int x = 0; x < ADV_D; x += COLUMNS(SHORT) * W)
        for (int t = 0; t < TILES - TALL_TILES; t++) {
            int h = TALL_TILES * TALL + t * SHORT;
            add_tile(SHORT, p + h * MOST_ROWS, v + x, part + h * SLOT + x, rows, 0);
        }
}

static void attend(const Decode *decode, int64_t unit, int64_t from, int64_t to, real *part) {
    const stored *k = decode->k + unit * decode->n * ADV_D, *v = decode->v + unit * decode->n * ADV_D;
    real q[ADV_G * ADV_D], s[ADV_G * MOST_ROWS], most[ADV_G];
    vec total[ADV_G];
    for (int i = 0; i < ADV_G * ADV_D; i++) q[i] = decode->q[unit * ADV_G * ADV_D + i] * decode->scale;
    memset(part, 0, ADV_G * SLOT * sizeof(real));
    for (int h = 0; h < ADV_G; h++) most[h] = LOWEST, total[h] = (vec){0};
    for (int64_t j = from; j < to; j += decode->block) {
        int64_t rows = to - j < decode->block ? to - j : decode->block;
        score_block(q, k + j * ADV_D, s, rows, decode->ahead ? v + j * ADV_D : 0);
        for (int h = 0; h < ADV_G; h++) {
            real shrink = weigh(s + h * MOST_ROWS, rows, &most[h], &total[h]);
            if (shrink != 1)
                for (int d = 0; d < ADV_D; d++) part[h * SLOT + d] *= shrink;
        }
        add_block(s, v + j * ADV_D, part, rows, decode->ahead && j + 2 * rows <= to ? k + (j + rows) * ADV_D : 0);
    }
    for (int h = 0; h < ADV_G; h++) {
        part[h * SLOT + MAXIMUM] = most[h];
        part[h * SLOT + TOTAL] = lanes_sum(total[h]);
    }
}

int64_t decode_grouped_workspace(const int64_t *dims, int threads) {
    return team_bytes(dims[0] * dims[2], ADV_G, threads);
}

/* buffers: q [b][h][d], k and v [b][g][n][d], out [b][h][d].
   dims: batch, heads, kv_heads, head_dim, n, block, fetch. */
int decode_grouped(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[1] != ADV_G * dims[2] || dims[5] < 1 || dims[5] > MOST_ROWS) return 1;
    Decode decode = {.q = buffers[0], .k = buffers[1], .v = buffers[2], .out = buffers[3], .units = dims[0] * dims[2],
                     .n = dims[4], .heads = ADV_G, .sharing = 1, .block = dims[5], .ahead = dims[6],
                     .scale = LOG2_E / (real)sqrt(ADV_D), .workspace = workspace};
    do_line(&decode, threads, attend);
    return 0;
}
