/* variant {
  "idea": "matrix units for float32: every number is cut into three bfloat16 thirds, whose six largest products carry all 24 bits",
  "language": "c", "symbol": "forward_amx", "dtypes": ["float32"], "requires": ["amx_bf16", "amx_tile", "avx512f", "avx512bw"],
  "macros": {"ADV_D": "head_dim"},
  "build_knobs": {"ADV_V": [64]}, "run_knobs": {"block": [4, 8], "group": [1, 2, 4]}, "defaults": {"ADV_V": 64, "block": 8, "group": 2},
  "valid": ["head_dim % 32 == 0", "head_dim <= 256"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads) + 3 * batch * n * head_dim * kv_heads",
  "writes": "batch * heads * n * head_dim + 3 * batch * n * head_dim * kv_heads", "atomics": "0",
  "mapping": "k and v are cut up in blocks of 32 rows, then groups of strips of 32 query rows are handed out one by one, head after head, the longest first",
  "rank": 15
} */
#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tile.h"

#ifndef ADV_D
#define ADV_D 64 /* head_dim */
#endif

/* A number x is cut by truncation: a = the upper 16 bits of x, b those of x - a, c those of x - a - b. Each has 8
   significant bits, so a + b + c is x. Of the nine products of two numbers cut so, aa, ab, ba, ac, bb, ca are kept; the
   rest are below 2^-24 of the whole, as is the rounding of a float32 sum. */
#define THIRDS 3
#define STRIP 32 /* query rows that are worked on together: two tiles side by side */
#define KEYS 32  /* rows of k and v that are cut up together: two tiles, or the depth of one */
#define TILE 16  /* rows of a tile, and numbers in a row of sums */
#define TARGET __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw")))

typedef uint16_t half;
typedef uint32_t bits_vec __attribute__((vector_size(ADV_V), aligned(4), may_alias));

/* What the matrix unit needs to know: eight tiles of 16 rows of 64 bytes. Source: Intel SDM, LDTILECFG. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t columns[16];
    uint8_t rows[16];
} Config;

typedef struct {
    const float *q;   /* [n][d] of one head */
    const half *k;    /* [THIRDS][padded n][d] */
    const half *v;    /* [padded n / KEYS][THIRDS][d][KEYS] */
    float *out;       /* [n][d] */
    int64_t n, block; /* block: rows of k at once, a multiple of KEYS */
    int causal;
} Head;

/* What a thread keeps of one strip, and where it works on one block of k and v. Pairs of rows lie side by side, as the
   matrix unit takes its right side. */
typedef struct {
    half *q;             /* [THIRDS][d / 2][STRIP][2] */
    float *sums;         /* out, [d][STRIP] */
    float *most, *total; /* [STRIP] */
    half *p;             /* [THIRDS][block / 2][STRIP][2] */
    float *s;            /* [block][STRIP] */
} Scratch;

INLINE int64_t padded(int64_t n) { return (n + KEYS - 1) / KEYS * KEYS; }
INLINE int64_t cut_halves(int64_t n) { return 2 * THIRDS * padded(n) * ADV_D; } /* k and v of one head */
INLINE int64_t kept_bytes(void) { return (THIRDS * ADV_D * 2 + (ADV_D + 2) * 4) * STRIP; }
INLINE int64_t scratch_bytes(int64_t block, int64_t group) {
    return group * kept_bytes() + (THIRDS * 2 + 4) * block * STRIP;
}

INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float upper(float x) {
    uint32_t bits = bits_of(x) & 0xFFFF0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* thirds[t] of two numbers as pairs: x in the lower half of a word, y in the upper. */
INLINE void cut_pair(float x, float y, uint32_t *thirds) {
    for (int t = 0; t < THIRDS; t++) {
        thirds[t] = (bits_of(y) & 0xFFFF0000u) | bits_of(x) >> 16;
        x -= upper(x);
        y -= upper(y);
    }
}

/* W numbers in thirds, each in 16 bits. */
typedef uint16_t halves_vec __attribute__((vector_size(ADV_V / 2), aligned(2), may_alias));

/* Rows first .. first + KEYS - 1 of k, as they lie; rows past n are zero. */
static void cut_k(const float *k, int64_t n, int64_t first, half *to) {
    int64_t third = padded(n) * ADV_D;
    for (int64_t j = first; j < first + KEYS; j++)
        for (int d = 0; d < ADV_D; d += W) {
            vec x = j < n ? load(k + j * ADV_D + d) : (vec){0};
            UNROLL for (int t = 0; t < THIRDS; t++) {
                bits_vec high = (bits_vec)x & 0xFFFF0000u;
                *(halves_vec *)(to + t * third + j * ADV_D + d) = __builtin_convertvector(high >> 16, halves_vec);
                x -= (vec)high;
            }
        }
}

/* The same rows of v, transposed: [THIRDS][d][KEYS]. */
static void cut_v(const float *v, int64_t n, int64_t first, half *to) {
    to += first * THIRDS * ADV_D;
    for (int64_t j = 0; j < KEYS; j += 2)
        for (int d = 0; d < ADV_D; d += W) {
            vec x = first + j < n ? load(v + (first + j) * ADV_D + d) : (vec){0};
            vec y = first + j + 1 < n ? load(v + (first + j + 1) * ADV_D + d) : (vec){0};
            UNROLL for (int t = 0; t < THIRDS; t++) {
                bits_vec a = (bits_vec)x & 0xFFFF0000u, b = (bits_vec)y & 0xFFFF0000u, pairs = b | a >> 16;
                uint32_t each[ADV_V / 4];
                memcpy(each, &pairs, sizeof each);
                UNROLL for (int i = 0; i < W; i++) memcpy(to + (t * ADV_D + d + i) * KEYS + j, &each[i], 4);
                x -= (vec)a;
                y -= (vec)b;
            }
        }
}

/* Query rows, scaled, as the right side of a product: pairs along d. */
static void cut_q(const float *q, int64_t rows, half *to) {
    float scale = (float)LOG2_E / sqrtf((float)ADV_D);
    for (int d = 0; d < ADV_D; d += 2)
        for (int64_t r = 0; r < STRIP; r++) {
            uint32_t pair[THIRDS] = {0};
            if (r < rows) cut_pair(q[r * ADV_D + d] * scale, q[r * ADV_D + d + 1] * scale, pair);
            for (int t = 0; t < THIRDS; t++) memcpy(to + (t * ADV_D / 2 + d / 2) * STRIP * 2 + r * 2, &pair[t], 4);
        }
}

/* Tiles 0..3: sums [2 row tiles][2 column tiles]; 4, 5: left; 6, 7: right. */
#define MULTIPLY                                                                                                       \
    do {                                                                                                               \
        _tile_dpbf16ps(0, 4, 6);                                                                                       \
        _tile_dpbf16ps(1, 4, 7);                                                                                       \
        _tile_dpbf16ps(2, 5, 6);                                                                                       \
        _tile_dpbf16ps(3, 5, 7);                                                                                       \
    } while (0)
#define FENCE __asm__ volatile("" ::: "memory") /* tile loads do not tell the compiler what they read */

/* The six products over a depth of 32. Thirds of the left lie `left_third` bytes apart, those of the right likewise. */
TARGET INLINE void six(const char *left, int64_t left_row, int64_t left_third, const char *right, int64_t right_third) {
    const int64_t right_row = STRIP * 4;
    for (int t = 0; t < THIRDS; t++) {
        _tile_loadd(4, left + t * left_third, left_row);
        _tile_loadd(5, left + t * left_third + TILE * left_row, left_row);
        for (int u = 0; u < THIRDS - t; u++) {
            _tile_loadd(6, right + u * right_third, right_row);
            _tile_loadd(7, right + u * right_third + TILE * 4, right_row);
            MULTIPLY;
        }
    }
}

TARGET INLINE void store_sums(float *to) {
    _tile_stored(0, to, STRIP * 4);
    _tile_stored(1, to + TILE, STRIP * 4);
    _tile_stored(2, to + TILE * STRIP, STRIP * 4);
    _tile_stored(3, to + TILE * STRIP + TILE, STRIP * 4);
}

TARGET INLINE void load_sums(const float *from) {
    _tile_loadd(0, from, STRIP * 4);
    _tile_loadd(1, from + TILE, STRIP * 4);
    _tile_loadd(2, from + TILE * STRIP, STRIP * 4);
    _tile_loadd(3, from + TILE * STRIP + TILE, STRIP * 4);
}

/* s [rows][STRIP] of rows j .. of k; rows a multiple of KEYS. */
TARGET static void score(const Head *head, int64_t j, int64_t rows, const Scratch *own) {
    int64_t third = padded(head->n) * ADV_D * 2;
    FENCE;
    for (int64_t r = 0; r < rows; r += KEYS) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int d = 0; d < ADV_D; d += 32)
            six((const char *)(head->k + (j + r) * ADV_D + d), ADV_D * 2, third,
                (const char *)(own->q + d / 2 * STRIP * 2), ADV_D / 2 * STRIP * 4);
        store_sums(own->s + r * STRIP);
    }
    FENCE;
}

/* sums [d][STRIP] += v^T p over `rows` rows. */
TARGET static void accumulate(const Head *head, int64_t j, int64_t rows, const Scratch *own) {
    FENCE;
    for (int d = 0; d < ADV_D; d += 2 * TILE) {
        load_sums(own->sums + d * STRIP);
        for (int64_t r = 0; r < rows; r += KEYS)
            six((const char *)(head->v + (j + r) * THIRDS * ADV_D + d * KEYS), KEYS * 2, ADV_D * KEYS * 2,
                (const char *)(own->p + r / 2 * STRIP * 2), head->block / 2 * STRIP * 4);
        store_sums(own->sums + d * STRIP);
    }
    FENCE;
}

/* Two rows of weights as pairs of thirds. */
INLINE void cut_weights(float_vec x, float_vec y, half *to, int64_t third) {
    UNROLL for (int t = 0; t < THIRDS; t++) {
        bits_vec a = (bits_vec)x & 0xFFFF0000u, b = (bits_vec)y & 0xFFFF0000u;
        *(bits_vec *)(to + t * third) = b | a >> 16;
        x -= (float_vec)a;
        y -= (float_vec)b;
    }
}

/* Scores to weights against the new maximum, cut into thirds; sums shrink by what the maximum grew. */
static void weigh(const Scratch *own, int64_t rows, int64_t block) {
    int64_t third = block / 2 * STRIP * 2;
    for (int x = 0; x < STRIP; x += W) {
        float *s = own->s + x;
        vec old = load(own->most + x), best = old;
        for (int64_t j = 0; j < rows; j++) best = larger(best, load(s + j * STRIP));
        vec shrink = exp2_of(old - best), sum = load(own->total + x) * shrink;
        for (int64_t j = 0; j < rows; j += 2) {
            vec a = exp2_of(load(s + j * STRIP) - best), b = exp2_of(load(s + (j + 1) * STRIP) - best);
            sum += a + b;
            cut_weights((float_vec)a, (float_vec)b, own->p + j * STRIP + x * 2, third);
        }
        store(own->most + x, best);
        store(own->total + x, sum);
        for (int d = 0; d < ADV_D; d++) store(own->sums + d * STRIP + x, load(own->sums + d * STRIP + x) * shrink);
    }
}

/* Rows past `end`, and, causal, those past a query row's own, count for nothing. */
static void mask(float *s, int64_t j, int64_t rows, int64_t first, int64_t end, int causal) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t lane = 0; lane < STRIP; lane++)
            if (j + r >= end || (causal && first + lane < j + r)) s[r * STRIP + lane] = (float)LOWEST;
}

static void write_out(const Scratch *own, int64_t rows, float *out) {
    for (int64_t r = 0; r < rows; r++) {
        float part = 1 / own->total[r];
        for (int d = 0; d < ADV_D; d++) out[r * ADV_D + d] = own->sums[d * STRIP + r] * part;
    }
}

static void begin(const Head *head, int64_t first, const Scratch *own) {
    int64_t rows = head->n - first < STRIP ? head->n - first : STRIP;
    cut_q(head->q + first * ADV_D, rows, own->q);
    for (int lane = 0; lane < STRIP; lane++) own->most[lane] = (float)LOWEST, own->total[lane] = 0;
    memset(own->sums, 0, ADV_D * STRIP * sizeof(float));
}

/* Rows j .. j + block - 1 of k and v for the strip of query rows that starts at `first`. */
static void advance(const Head *head, int64_t first, int64_t j, const Scratch *own) {
    int64_t end = head->causal && first + STRIP < head->n ? first + STRIP : head->n;
    if (j >= end) return;
    int64_t count = end - j < head->block ? padded(end - j) : head->block;
    score(head, j, count, own);
    if (j + count > end || (head->causal && j + count > first)) mask(own->s, j, count, first, end, head->causal);
    weigh(own, count, head->block);
    accumulate(head, j, count, own);
}

/* Strips first, first + STRIP, ... of one head: each block of k and v is read for all of them while it is near. */
static void strips(const Head *head, int64_t first, int64_t group, const Scratch *own) {
    int64_t left = (head->n - first + STRIP - 1) / STRIP, count = left < group ? left : group;
    for (int64_t i = 0; i < count; i++) begin(head, first + i * STRIP, own + i);
    for (int64_t j = 0; j < head->n; j += head->block)
        for (int64_t i = 0; i < count; i++) advance(head, first + i * STRIP, j, own + i);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = first + i * STRIP, rows = head->n - row < STRIP ? head->n - row : STRIP;
        write_out(own + i, rows, head->out + row * ADV_D);
    }
}

/* The scratch of a group at `at`: p and s are shared, the rest is each strip's own. */
static void share_out(char *at, int64_t block, int64_t group, Scratch *own) {
    half *p = (half *)(at + group * kept_bytes());
    for (int64_t i = 0; i < group; i++) {
        own[i].q = (half *)(at + i * kept_bytes());
        own[i].sums = (float *)(own[i].q + THIRDS * ADV_D * STRIP);
        own[i].most = own[i].sums + ADV_D * STRIP;
        own[i].total = own[i].most + STRIP;
        own[i].p = p;
        own[i].s = (float *)(p + THIRDS * block * STRIP);
    }
}

/* Ask the kernel for the matrix unit's registers, for this process. Source: Documentation/arch/x86/xstate.rst. */
static int permitted(void) { return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0; }

TARGET static void configure(void) {
    Config config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.rows[t] = TILE, config.columns[t] = 64;
    FENCE;
    _tile_loadconfig(&config);
}

TARGET static void release(void) { _tile_release(); }

#define MOST_GROUP 8

int64_t forward_amx_workspace(const int64_t *dims, int threads) {
    return dims[0] * dims[2] * cut_halves(dims[5]) * 2 + threads * scratch_bytes(dims[6] * KEYS, dims[7]);
}

/* buffers: q [b][h][n][d], k, v [b][g][n][d], out [b][h][n][d].
   dims: batch, heads, kv_heads, head_dim, causal, n, block (in 32 rows), group (strips). */
int forward_amx(void *const *buffers, const int64_t *dims, void *workspace, int threads) {
    if (dims[3] != ADV_D || dims[6] < 1 || dims[7] < 1 || dims[7] > MOST_GROUP) return 1;
    if (!permitted()) return 2;
    int64_t heads = dims[0] * dims[1], caches = dims[0] * dims[2], sharing = dims[1] / dims[2], n = dims[5];
    int64_t block = dims[6] * KEYS, group = dims[7], blocks = padded(n) / KEYS, size = n * ADV_D;
    int64_t groups = (n + STRIP * group - 1) / (STRIP * group);
    half *cut = workspace;
#pragma omp parallel num_threads(threads)
    {
        Scratch own[MOST_GROUP];
        char *scratch = (char *)(cut + caches * cut_halves(n)) + omp_get_thread_num() * scratch_bytes(block, group);
        share_out(scratch, block, group, own);
        configure();
#pragma omp for schedule(static)
        for (int64_t task = 0; task < caches * blocks; task++) {
            int64_t g = task / blocks, first = task % blocks * KEYS;
            cut_k((const float *)buffers[1] + g * size, n, first, cut + g * cut_halves(n));
            cut_v((const float *)buffers[2] + g * size, n, first, cut + g * cut_halves(n) + cut_halves(n) / 2);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < heads * groups; task++) {
            int64_t h = task / groups, first = (groups - 1 - task % groups) * STRIP * group;
            half *k = cut + h / sharing * cut_halves(n);
            Head head = {(const float *)buffers[0] + h * size, k, k + cut_halves(n) / 2, (float *)buffers[3] + h * size,
                         n, block, (int)dims[4]};
            strips(&head, first, group, own);
        }
        release();
    }
    return 0;
}
