/* variant {
  "idea": "tiles on the tensor cores where rows are few: the warps of a tile take its keys in turn, blocks take splits of them",
  "language": "cuda", "symbol": "forward_tiled_tensor", "dtypes": ["float64", "float32"], "requires": ["sm_90"],
  "macros": {"ADV_HD": "head_dim", "ADV_STEP": "16", "ADV_STAGES": "1"},
  "build_knobs": {"ADV_TILES": [1, 2, 4], "ADV_SPLITS": [1, 2, 4, 8]}, "run_knobs": {"splits": [1, 2, 4]},
  "defaults": {"ADV_TILES": 1, "ADV_SPLITS": 8, "splits": 2},
  "valid": ["head_dim == 64 or head_dim == 128", "ADV_TILES * ADV_SPLITS == 4 or ADV_TILES * ADV_SPLITS == 8",
            "splits == 1 or splits * ADV_SPLITS * 8 * max(2, ADV_TILES) < n + ADV_SPLITS * 8 * max(2, ADV_TILES)",
            "n * batch * heads <= 4224", "splits * ((n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)) * batch * heads <= 528"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "atomics": "(splits > 1) * splits * tiles",
  "derived": {
    "tiles": "(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES) * batch * heads",
    "first": "(splits > 1) * ((4 * tiles + 15) // 16 * 16)"
  },
  "grid": ["(n + 16 * ADV_TILES - 1) // (16 * ADV_TILES)", "batch * heads", "splits"], "block": "32 * ADV_TILES * ADV_SPLITS",
  "shared": "16 * (ADV_TILES + ADV_SPLITS * max(2, ADV_TILES)) * (head_dim * real_bytes + 16)",
  "workspace": "first + (splits > 1) * tiles * splits * 16 * ADV_TILES * (head_dim + 2) * real_bytes", "zeros": "first",
  "mapping": "tiled: a warp takes sixteen rows, and of a block's split of the keys its turn; weights stay in registers",
  "rank": 9
} */
#include "forward_tiles.cuh"

typedef real store;

#include "splits.cuh"

/* Blocks of many rows take longer steps. */
typedef Front<TILES, SPLITS, TILES < 4 ? STEP : 2 * STEP> Shape;

/* The first warp of a tile has its rows: the result, or what is merged to it. */
__device__ __forceinline__ void emit(Running &my, real *out, const Splits<OWN> &parts, int split, int rows) {
  const int own = own_tile() * 16;
  if (own_split()) return;
  if (parts.filled == 1) {
    for (int r = 0; r < 2; r++) shrink(my, r, 1 / my.total[r]);
    put(my.out, out, own, rows);
    return;
  }
  put(my.out, parts.sums + wide(split) * OWN * HD, own, OWN);
  if (lane_pair()) return;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    real *to = parts.stats + (split * OWN + own + lane_row() + 8 * r) * 2;
    to[0] = my.most[r];
    to[1] = my.total[r];
  }
}

extern "C" __global__ void __launch_bounds__(TEAM)
    forward_tiled_tensor(const real *q, const real *k, const real *v, real *out, unsigned char *workspace, int batch,
                         int heads, int kv_heads, int head_dim, int causal, int n, int splits, int tiles, int first) {
  const Place place = query_place(causal);
  const int split = blockIdx.z;
  const Span span = span_of(place.first + OWN, n, causal, Shape::ROUND, split, splits);
  if (span.begin == span.stop) return;
  const wide rows = place.head * n * HD, cache = place.head / (heads / kv_heads) * n * HD;
  const int seen = causal ? min(n, place.first + OWN) : n;
  const real scale = score_scale() * LOG2E;
  Running my;
  attend<Shape>(my, q + rows, k + cache, v + cache, place, span.begin * Shape::ROUND, min(seen, span.stop * Shape::ROUND),
                n, [=](real x, int row, int key) { return key < (causal ? min(n, row + 1) : n) ? x * scale : LOWEST; });
  const Splits<OWN> parts(workspace, first, place.head * gridDim.x + place.first / OWN, tiles, splits, span.filled);
  real *mine = out + rows + wide(place.first) * HD;
  emit(my, mine, parts, split, min(OWN, n - place.first));
  if (span.filled > 1) merge<OWN, TEAM>(parts, mine, min(OWN, n - place.first));
}
