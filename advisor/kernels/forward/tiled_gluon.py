"""variant {
  "idea": "two groups of warps on tensor cores take turns, fed by a warp that copies; a softmax runs beside products",
  "language": "triton", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_90"],
  "arithmetic": "cache",
  "run_knobs": {"keys": [64, 128], "turns": [0, 1], "splits": [1, 2, 4]},
  "defaults": {"keys": 128, "turns": 0, "splits": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535", "n >= 128",
            "keys == 128 or (turns == 0 and splits == 1)",
            "splits == 1 or splits * keys <= n",
            "splits == 1 or splits * ((n + 127) // 128) * batch * heads <= 132"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "mapping": "tiled: a block takes 128 query rows of a head, 64 a warp group; one more warp asks for tiles of keys",
  "rank": 5
}

Written in Triton's lower language, which names layouts, barriers and who runs what. The scores of the next keys are
computed while the weights of the last ones multiply v; where the groups ask for products in turns, the softmax of one
runs beside both products of the other.
Weights are rounded to the dtype of the operands between the two products, and so is the result. Where n is no multiple
of a tile's keys the last one begins earlier, and what the tile before it had is masked. Where rows are few, keys are
split among blocks, whose sums a second kernel joins; all blocks but the last of a head's have equally many. Causal, a
block whose keys come after its rows ends at once, and nothing of it is read.

Source of the order of products: Shah et al., "FlashAttention-3", 2024, algorithm 2.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = 64
"""Query rows of a warp group."""

STAGES = {64: 3, 128: 2}
"""Rows of keys in a tile -> tiles that are on their way or in use."""

JOINED = 16
"""Rows of a program that joins splits."""

TYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


@gluon.jit
def _masked(  # noqa: PLR0913, PLR0917 (a kernel takes what it takes)
    s, start, whole, rows, n,
    KEYS: gl.constexpr, CAUSAL: gl.constexpr, LAYOUT: gl.constexpr,  # noqa: N803
):  # fmt: skip
    """Scores with those of keys left out that a row does not see; tiles before `whole` need none left out.

    A tile that would pass the last key begins earlier, see _feed; what the tile before it had is left out. What is left
    out is minus infinity, whose weight is 0 whatever the largest score so far, which is finite.
    """
    if start >= whole:
        at = gl.minimum(start, n - KEYS) + gl.arange(0, KEYS, layout=gl.SliceLayout(0, LAYOUT))
        seen = gl.expand_dims(at, 0) >= start
        if CAUSAL:
            seen = seen & (gl.expand_dims(at, 0) <= gl.expand_dims(rows, 1))
        s = gl.where(seen, s, float("-inf"))
    return s


@gluon.jit
def _weighed(s, most, scale):
    """Weights of scores, the largest score so far, and by what shrinks what was summed before."""
    now = gl.maximum(most, gl.max(s, 1) * scale)
    return gl.exp2(s * scale - gl.expand_dims(now, 1)), now, gl.exp2(most - now)


@gluon.jit
def _emit(  # noqa: PLR0913, PLR0917 (as above)
    acc, most, total, first, rows, out, parts, n,
    D: gl.constexpr, ROWS: gl.constexpr, SPLIT: gl.constexpr, KIND: gl.constexpr,  # noqa: N803
):  # fmt: skip
    """The rows of a warp group that exist, as the result or as the partial result of a split."""
    wide: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    to_rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, wide))
    columns = gl.arange(0, D, layout=gl.SliceLayout(0, wide))
    to = gl.expand_dims(to_rows, 1) * D + gl.expand_dims(columns, 0)
    head = gl.program_id(1)
    if SPLIT:
        sums, most_of, total_of = parts
        part = gl.program_id(2) * gl.num_programs(1) + head
        gl.store(sums + part * n * D + to, gl.convert_layout(acc, wide), mask=gl.expand_dims(to_rows, 1) < n)
        gl.store(most_of + part * n + rows, most, mask=rows < n)
        gl.store(total_of + part * n + rows, total, mask=rows < n)
    else:
        acc = acc / gl.expand_dims(gl.convert_layout(total, gl.SliceLayout(1, acc.type.layout)), 1)
        acc = gl.convert_layout(acc.to(KIND), wide)
        gl.store(out + head.to(gl.int64) * n * D + to, acc, mask=gl.expand_dims(to_rows, 1) < n)


@gluon.jit
def _consume(  # noqa: PLR0913, PLR0917 (as above)
    group: gl.constexpr, space, out, parts, numbers,
    D: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,  # noqa: N803
    TURNS: gl.constexpr, SPLIT: gl.constexpr,  # noqa: N803
):  # fmt: skip
    """One warp group: its query rows against `tiles` tiles of keys as they come, the first of them tile `begin`."""
    q, k, v, asked, k_full, k_free, v_full, v_free, mine_next = space
    scale, n, place, begin, tiles, whole = numbers
    scored: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, KEYS, 16])
    summed: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    left: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=summed, k_width=2)
    first = place * (2 * ROWS) + group * ROWS
    rows = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, scored))
    mine = q.index(group)
    blank = gl.zeros([ROWS, KEYS], gl.float32, scored)
    acc = gl.zeros([ROWS, D], gl.float32, summed)
    most = gl.full([ROWS], -1e30, gl.float32, gl.SliceLayout(1, scored))

    mbarrier.wait(asked, 0)
    mbarrier.wait(k_full.index(0), 0)
    s = warpgroup_mma(mine, k.index(0).permute((1, 0)), blank, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=(s,))
    mbarrier.arrive(k_free.index(0), count=1)
    p, most, _shrink = _weighed(_masked(s, begin * KEYS, whole, rows, n, KEYS, CAUSAL, scored), most, scale)
    total = gl.sum(p, 1)
    weights = gl.convert_layout(p.to(k.dtype), left)
    for j in range(1, tiles):
        at, turn = j % STAGES, j // STAGES & 1
        before, turn_before = (j - 1) % STAGES, (j - 1) // STAGES & 1
        if TURNS:  # group 0 asks first; then each waits for what the other asked for last
            mbarrier.wait(mine_next.index(group), ((j - 1) & 1) ^ (1 - group))
        mbarrier.wait(k_full.index(at), turn)
        s = warpgroup_mma(mine, k.index(at).permute((1, 0)), blank, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(before), turn_before)
        acc = warpgroup_mma(weights, v.index(before), acc, is_async=True)
        if TURNS:
            mbarrier.arrive(mine_next.index(1 - group), count=1)
        s = warpgroup_mma_wait(1, deps=(s,))
        mbarrier.arrive(k_free.index(at), count=1)
        s = _masked(s, (begin + j) * KEYS, whole, rows, n, KEYS, CAUSAL, scored)
        p, most, shrink = _weighed(s, most, scale)
        total = total * shrink + gl.sum(p, 1)
        acc, weights = warpgroup_mma_wait(0, deps=(acc, weights))
        mbarrier.arrive(v_free.index(before), count=1)
        acc = acc * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, summed)), 1)
        weights = gl.convert_layout(p.to(k.dtype), left)
    last, turn_last = (tiles - 1) % STAGES, (tiles - 1) // STAGES & 1
    mbarrier.wait(v_full.index(last), turn_last)
    acc = warpgroup_mma(weights, v.index(last), acc, is_async=True)
    acc, weights = warpgroup_mma_wait(0, deps=(acc, weights))
    _emit(acc, most, total, first, rows, out, parts, n, D, ROWS, SPLIT, k.dtype)


@gluon.jit
def _feed(  # noqa: PLR0913, PLR0917 (as above)
    q_at, k_at, v_at, space, places, tiles,
    ROWS: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr,  # noqa: N803
):  # fmt: skip
    """One warp: asks for the query rows, then for tiles of k and v as their places become free.

    None reaches into the next head: a number there that is not finite would spoil this one, masked or not.
    """
    q, k, v, asked, k_full, k_free, v_full, v_free, _mine_next = space
    row, head, begin, n = places
    mbarrier.expect(asked, 2 * q_at.block_type.nbytes)
    tma.async_copy_global_to_shared(q_at, [row, 0], asked, q.index(0))
    tma.async_copy_global_to_shared(q_at, [row + ROWS, 0], asked, q.index(1))
    for j in range(tiles):
        at, turn = j % STAGES, (j // STAGES & 1) ^ 1
        mbarrier.wait(k_free.index(at), turn)
        mbarrier.expect(k_full.index(at), k_at.block_type.nbytes)
        key = head * n + gl.minimum((begin + j) * KEYS, n - KEYS)
        tma.async_copy_global_to_shared(k_at, [key, 0], k_full.index(at), k.index(at))
        mbarrier.wait(v_free.index(at), turn)
        mbarrier.expect(v_full.index(at), v_at.block_type.nbytes)
        tma.async_copy_global_to_shared(v_at, [key, 0], v_full.index(at), v.index(at))


@gluon.jit(do_not_specialize=["n", "sharing", "share"])
def _forward(  # noqa: PLR0913, PLR0917 (as above)
    q_at, k_at, v_at, out, sums, most_of, total_of, scale, n, sharing, share,
    D: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,  # noqa: N803
    TURNS: gl.constexpr, SPLIT: gl.constexpr,  # noqa: N803
):  # fmt: skip
    head = gl.program_id(1)
    place = gl.num_programs(0) - 1 - gl.program_id(0)  # causal: the longest first
    begin = gl.program_id(2) * share
    end, whole = n, n // KEYS * KEYS
    if CAUSAL:
        end = gl.minimum(n, (place + 1) * (2 * ROWS))
        whole = place * (2 * ROWS) // KEYS * KEYS
    tiles = (end + KEYS - 1) // KEYS
    if CAUSAL and SPLIT and begin >= tiles:
        return
    tiles = gl.minimum(tiles - begin, share)

    q = gl.allocate_shared_memory(q_at.dtype, [2, ROWS, D], q_at.layout)
    k = gl.allocate_shared_memory(k_at.dtype, [STAGES, KEYS, D], k_at.layout)
    v = gl.allocate_shared_memory(v_at.dtype, [STAGES, KEYS, D], v_at.layout)
    asked = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mine_next = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(asked, count=1)
    mbarrier.init(mine_next.index(0), count=1)
    mbarrier.init(mine_next.index(1), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_free.index(i), count=2)

    places = (head * n + place * (2 * ROWS), head // sharing, begin, n)
    parts, numbers = (sums, most_of, total_of), (scale, n, place, begin, tiles, whole)
    space = (q, k, v, asked, k_full, k_free, v_full, v_free, mine_next)
    gl.warp_specialize(
        [
            (_consume, (0, space, out, parts, numbers, D, ROWS, KEYS, STAGES, CAUSAL, TURNS, SPLIT)),
            (_consume, (1, space, out, parts, numbers, D, ROWS, KEYS, STAGES, CAUSAL, TURNS, SPLIT)),
            (_feed, (q_at, k_at, v_at, space, places, tiles, ROWS, KEYS, STAGES)),
        ],
        [4, 1],
        [232, 24],
    )


@triton.jit(do_not_specialize=["n", "step"])
def _join(  # noqa: PLR0913, PLR0917 (as above)
    out, sums, most_of, total_of, n, step,
    D: tl.constexpr, ROWS: tl.constexpr, SPLITS: tl.constexpr, CAUSAL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """The result of rows whose keys were split `step` to a split, in the order of the splits.

    Causal, a row has no sums of a split that begins after it: as many rows as a block takes divide `step`.
    """
    head, heads = tl.program_id(1), tl.num_programs(1)
    rows, dims = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    here = rows < n
    most = tl.full([ROWS], -1e30, tl.float32)
    for split in tl.static_range(SPLITS):
        seen = here & (rows >= split * step) if CAUSAL else here
        most = tl.maximum(most, tl.load(most_of + (split * heads + head) * n + rows, mask=seen, other=-1e30))
    total = tl.full([ROWS], 0.0, tl.float32)
    acc = tl.full([ROWS, D], 0.0, tl.float32)
    for split in tl.static_range(SPLITS):
        part = (split * heads + head) * n
        seen = here & (rows >= split * step) if CAUSAL else here
        weight = tl.exp2(tl.load(most_of + part + rows, mask=seen, other=-1e30) - most)
        total += weight * tl.load(total_of + part + rows, mask=seen, other=1.0)
        at = (part + rows)[:, None] * D + dims[None, :]
        acc += weight[:, None] * tl.load(sums + at, mask=seen[:, None], other=0.0)
    at = head.to(tl.int64) * n * D + rows[:, None] * D + dims[None, :]
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=here[:, None])


def _tiles_of(tensor: Any, rows: int, d: int) -> Any:
    """A descriptor of tiles of all rows of all heads."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, d], TYPES[tensor.dtype])
    return TensorDescriptor.from_tensor(tensor.view(-1, d), [rows, d], layout)


def shares(n: int, keys: int, splits: int) -> tuple[int, int]:
    """Tiles of `keys` keys that a split has at most, and how many splits have any, of at most `splits`."""
    tiles = -(-n // keys)
    share = -(-tiles // splits)
    return share, -(-tiles // share)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n. Writes out itself."""
    batch, heads, kv_heads, d, causal, n = dims
    keys = knobs["keys"]
    share, splits = shares(n, keys, knobs["splits"])
    tall = (ROWS, keys, keys)
    q, k, v = (_tiles_of(one, rows, d) for one, rows in zip(buffers, tall, strict=False))
    out, grid = buffers[3], (-(-n // (2 * ROWS)), batch * heads, splits)
    count = batch * heads * n * splits if splits > 1 else 0
    sums, *stats = (torch.empty(count * more, device=out.device) for more in (d, 1, 1))
    scale, sharing = math.log2(math.e) / math.sqrt(d), heads // kv_heads

    tiles = (d, ROWS, keys, STAGES[keys], bool(causal), bool(knobs["turns"]), splits > 1)

    def call() -> None:
        _forward[grid](q, k, v, out, sums, *stats, scale, n, sharing, share, *tiles, num_warps=4)
        if splits > 1:
            _join[-(-n // JOINED), batch * heads](out, sums, *stats, n, share * keys, d, JOINED, splits, bool(causal))

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: sums and row statistics of splits."""
    batch, heads, _, d, _, n = dims
    splits = shares(n, knobs["keys"], knobs["splits"])[1]
    return 4 * batch * heads * n * (d + 2) * splits if splits > 1 else 0
