"""variant {
  "idea": "tiles through Triton: forward keeps lse and delta, then gk and gv by columns, gq by rows or by atomic sums",
  "language": "triton", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_90"],
  "arithmetic": "cache",
  "run_knobs": {"own": [64, 128], "step": [32, 64], "gq_atomic": [0, 1], "splits": [1, 2, 4, 8]},
  "defaults": {"own": 128, "step": 32, "gq_atomic": 0, "splits": 1},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535",
            "splits == 1 or (own == 64 and step == 32 and gq_atomic == 0)",
            "splits == 1 or splits * batch * heads * n <= 528 * own"],
  "reads": "batch * n * head_dim * (4 * heads + 6 * kv_heads - gq_atomic * 2 * kv_heads) + 4 * batch * heads * n",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads + gq_atomic * 2 * heads) + 2 * batch * heads * n",
  "atomics": "gq_atomic * batch * heads * head_dim * n * (n + causal * own) // own // (1 + causal)",
  "mapping": "a program takes a tile of query rows, of k and v for gk and gv; splits share a tile; lanes are Triton's",
  "rank": 60
}

Sums of gq_atomic come in the order in which programs come. Weights and their gradients are rounded to the dtype between
products: the tolerance is the one of `"arithmetic": "cache"`. For another n nothing is compiled anew, but for one that
no whole number of tiles covers, or the first that one does.

Where tiles are fewer than multiprocessors, splits take a part of what streams by each; a kernel of their own adds up
their sums, which are float32, in their order.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

STEP = 64
"""Rows of k and v at a time where a program owns query rows."""

MERGED = 32
"""Query rows of a program that merges splits of the forward part."""

ADDED = 1024
"""Numbers of a program that adds up gradients of splits."""


@triton.jit
def _load(base, rows, n, D: tl.constexpr, MASKED: tl.constexpr):  # noqa: N803
    """Rows of a head; zeros past its end, which only the last tile reaches."""
    at = base + rows[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
    return tl.load(at, mask=rows[:, None] < n, other=0.0) if MASKED else tl.load(at)


@triton.jit
def _store(base, rows, n, values, D: tl.constexpr):  # noqa: N803
    at = base + rows[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
    tl.store(at, values.to(base.dtype.element_ty), mask=rows[:, None] < n)


@triton.jit
def _attend(  # noqa: PLR0913, PLR0917 (a kernel takes what it takes)
    acc, total, most, query, rows, k, v, scale, n, first, end,
    D: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Rows first .. end of k and v into the sums of a tile of query rows."""
    for start in range(first, end, STEP):
        columns = start + tl.arange(0, STEP)
        keys = _load(k, columns, n, D, MASKED)
        s = tl.dot(query, tl.trans(keys)) * scale
        if MASKED:
            seen = columns[None, :] < n
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            s = tl.where(seen, s, -1e30)
        now = tl.maximum(most, tl.max(s, 1))
        p = tl.exp2(s - now[:, None])
        shrink = tl.exp2(most - now)
        total = total * shrink + tl.sum(p, 1)
        values = _load(v, columns, n, D, MASKED)
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
        most = now
    return acc, total, most


@triton.jit
def _part(n, STEP: tl.constexpr, SPLITS: tl.constexpr, BEFORE: tl.constexpr):  # noqa: N803
    """This program's split, and the rows first .. end that it takes of those that stream by: whole steps.

    BEFORE: programs of another kind come before it along the axis of splits.
    """
    size = tl.cdiv(tl.cdiv(n, STEP), SPLITS) * STEP
    split = tl.program_id(2) - BEFORE
    return split, split * size, tl.minimum(n, (split + 1) * size)


@triton.jit
def _finish(acc, total, most, rows, gout, out, stats, n, D: tl.constexpr):  # noqa: N803, PLR0913, PLR0917
    """Rows of out of one head, and their lse in base 2 and delta."""
    acc = acc / total[:, None]
    cotangent = _load(gout, rows, n, D, True).to(tl.float32)
    _store(out, rows, n, acc, D)
    tl.store(stats + rows, most + tl.log2(total), mask=rows < n)
    tl.store(stats + n + rows, tl.sum(acc * cotangent, 1), mask=rows < n)


@triton.jit(do_not_specialize=["n", "sharing"])
def _forward(  # noqa: PLR0913, PLR0917
    q, k, v, gout, out, stats, parts, part_stats, scale, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, SPLITS: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Rows of out, their lse and delta; of one split of several its sums, maxima and totals."""
    head = tl.program_id(1).to(tl.int64)
    tile = (tl.num_programs(0) - 1 - tl.program_id(0)) if CAUSAL else tl.program_id(0)  # the long ones first
    rows = tile * OWN + tl.arange(0, OWN)
    cache = head // sharing * n * D
    query = _load(q + head * n * D, rows, n, D, True)
    acc = tl.zeros([OWN, D], tl.float32)
    total = tl.zeros([OWN], tl.float32)
    most = tl.full([OWN], -1e30, tl.float32)
    end = tl.minimum(n, (tile + 1) * OWN) if CAUSAL else n
    whole = (tl.minimum(n, tile * OWN) if CAUSAL else n) // STEP * STEP
    split, low, high = _part(n, STEP, SPLITS, 0)
    acc, total, most = _attend(
        acc, total, most, query, rows, k + cache, v + cache, scale, n, low, tl.minimum(whole, high),
        D, STEP, CAUSAL, False,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        acc, total, most = _attend(
            acc, total, most, query, rows, k + cache, v + cache, scale, n,
            tl.maximum(whole, low), tl.minimum(end, high), D, STEP, CAUSAL, True,
        )  # fmt: skip
    if SPLITS == 1:
        _finish(acc, total, most, rows, gout + head * n * D, out + head * n * D, stats + head * 2 * n, n, D)
    else:
        at = (split * tl.num_programs(1) + head) * n
        _store(parts + at * D, rows, n, acc, D)
        tl.store(part_stats + at * 2 + rows, most, mask=rows < n)
        tl.store(part_stats + at * 2 + n + rows, total, mask=rows < n)


@triton.jit(do_not_specialize=["n"])
def _merge(  # noqa: PLR0913, PLR0917
    gout, out, stats, parts, part_stats, n, D: tl.constexpr, OWN: tl.constexpr, SPLITS: tl.constexpr  # noqa: N803
):  # fmt: skip
    """The splits of some query rows become one."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * OWN + tl.arange(0, OWN)
    acc = tl.zeros([OWN, D], tl.float32)
    total = tl.zeros([OWN], tl.float32)
    most = tl.full([OWN], -1e30, tl.float32)
    for split in tl.static_range(SPLITS):
        at = (split * tl.num_programs(1) + head) * n
        other = tl.load(part_stats + at * 2 + rows, mask=rows < n, other=0.0)
        now = tl.maximum(most, other)
        shrink, grow = tl.exp2(most - now), tl.exp2(other - now)
        total = total * shrink + grow * tl.load(part_stats + at * 2 + n + rows, mask=rows < n, other=1.0)
        acc = acc * shrink[:, None] + grow[:, None] * _load(parts + at * D, rows, n, D, True)
        most = now
    _finish(acc, total, most, rows, gout + head * n * D, out + head * n * D, stats + head * 2 * n, n, D)


@triton.jit
def _weigh(  # noqa: PLR0913, PLR0917
    x, y, gx, gy, lse, delta, scale, seen, MASKED: tl.constexpr  # noqa: N803
):  # fmt: skip
    """A and S of tiles x against y; lse and delta are already shaped as rows or columns of them."""
    p = tl.exp2(tl.dot(x, tl.trans(y)) * scale - lse)
    if MASKED:
        p = tl.where(seen, p, 0.0)
    return p, p * (tl.dot(gx, tl.trans(gy)) - delta)


@triton.jit
def _columns_of_head(  # noqa: PLR0913, PLR0917
    gk, gv, keys, values, columns, q, gout, stats, sums, above, scale, root, n, first, end,
    D: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, ATOMIC: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Query rows first .. end of one head into the sums of a tile of columns."""
    for start in range(first, end, STEP):
        rows = start + tl.arange(0, STEP)
        query = _load(q, rows, n, D, MASKED)
        cotangent = _load(gout, rows, n, D, MASKED)
        if MASKED:
            lse = tl.load(stats + rows, mask=rows < n, other=float("inf"))  # weights of rows past the end are zero
            delta = tl.load(stats + n + rows, mask=rows < n, other=0.0)
        else:
            lse = tl.load(stats + rows)
            delta = tl.load(stats + n + rows)
        seen = columns[:, None] <= rows[None, :]
        p, s = _weigh(keys, query, values, cotangent, lse[None, :], delta[None, :], scale, seen, MASKED and CAUSAL)
        gv = tl.dot(p.to(query.dtype), cotangent, gv)
        s = s.to(query.dtype)
        gk = tl.dot(s, query, gk)
        if ATOMIC:
            s = tl.where(columns[:, None] < n, s, 0.0)  # a weight past the end of the columns may be infinite
            sums.atomic_add([above + start, 0], tl.dot(tl.trans(s), keys) * root)  # zeros past the end of a head
    return gk, gv


@triton.jit(do_not_specialize=["n", "sharing", "part"])
def _columns(  # noqa: PLR0913, PLR0917
    q, k, v, gout, stats, sums, gk_out, gv_out, part, scale, root, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, ATOMIC: tl.constexpr,  # noqa: N803
    SPLITS: tl.constexpr, EVEN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """gk and gv of a tile of columns, over all query heads that share them; ATOMIC: adds to gq too."""
    group = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * OWN + tl.arange(0, OWN)
    cache = group * n * D
    keys = _load(k + cache, columns, n, D, True)
    values = _load(v + cache, columns, n, D, True)
    gk = tl.zeros([OWN, D], tl.float32)
    gv = tl.zeros([OWN, D], tl.float32)
    first = tl.program_id(0) * OWN if CAUSAL else 0
    diagonal = tl.minimum(n // STEP * STEP, first + OWN) if CAUSAL else 0
    whole = tl.maximum(diagonal, n // STEP * STEP)
    split, low, high = _part(n, STEP, SPLITS, 0)
    for shared in range(sharing):
        head = group * sharing + shared
        at = head * n * D
        own, above = head * 2 * n + stats, (head * n).to(tl.int32)
        if CAUSAL:
            gk, gv = _columns_of_head(
                gk, gv, keys, values, columns, q + at, gout + at, own, sums, above, scale, root, n,
                tl.maximum(first, low), tl.minimum(diagonal, high),
                D, STEP, CAUSAL, True, ATOMIC,
            )  # fmt: skip
        gk, gv = _columns_of_head(
            gk, gv, keys, values, columns, q + at, gout + at, own, sums, above, scale, root, n,
            tl.maximum(diagonal, low), tl.minimum(whole, high),
            D, STEP, CAUSAL, False, ATOMIC,
        )  # fmt: skip
        if not EVEN:
            gk, gv = _columns_of_head(
                gk, gv, keys, values, columns, q + at, gout + at, own, sums, above, scale, root, n,
                tl.maximum(whole, low), high,
                D, STEP, CAUSAL, True, ATOMIC,
            )  # fmt: skip
    at = cache + split.to(tl.int64) * part
    _store(gk_out + at, columns, n, gk * root, D)
    _store(gv_out + at, columns, n, gv, D)


@triton.jit
def _rows_of_head(  # noqa: PLR0913, PLR0917
    gq, query, cotangent, rows, lse, delta, k, v, scale, n, first, end,
    D: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Rows first .. end of k and v into the sum of a tile of query rows."""
    for start in range(first, end, STEP):
        columns = start + tl.arange(0, STEP)
        keys = _load(k, columns, n, D, MASKED)
        values = _load(v, columns, n, D, MASKED)
        seen = columns[None, :] < n
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        _, s = _weigh(query, keys, cotangent, values, lse[:, None], delta[:, None], scale, seen, MASKED)
        gq = tl.dot(s.to(keys.dtype), keys, gq)
    return gq


@triton.jit(do_not_specialize=["n", "sharing", "part"])
def _rows(  # noqa: PLR0913, PLR0917
    q, k, v, gout, stats, gq_out, part, scale, root, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, SPLITS: tl.constexpr,  # noqa: N803
    BEFORE: tl.constexpr, EVEN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """gq of a tile of query rows."""
    head = tl.program_id(1).to(tl.int64)
    tile = (tl.num_programs(0) - 1 - tl.program_id(0)) if CAUSAL else tl.program_id(0)
    rows = tile * OWN + tl.arange(0, OWN)
    at, cache = head * n * D, head // sharing * n * D
    query = _load(q + at, rows, n, D, True)
    cotangent = _load(gout + at, rows, n, D, True)
    lse = tl.load(stats + head * 2 * n + rows, mask=rows < n, other=float("inf"))
    delta = tl.load(stats + head * 2 * n + n + rows, mask=rows < n, other=0.0)
    gq = tl.zeros([OWN, D], tl.float32)
    end = tl.minimum(n, (tile + 1) * OWN) if CAUSAL else n
    whole = (tl.minimum(n, tile * OWN) if CAUSAL else n) // STEP * STEP
    split, low, high = _part(n, STEP, SPLITS, BEFORE)
    gq = _rows_of_head(
        gq, query, cotangent, rows, lse, delta, k + cache, v + cache, scale, n, low, tl.minimum(whole, high),
        D, STEP, CAUSAL, False,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        gq = _rows_of_head(
            gq, query, cotangent, rows, lse, delta, k + cache, v + cache, scale, n, tl.maximum(whole, low),
            tl.minimum(end, high), D, STEP, CAUSAL, True,
        )  # fmt: skip
    _store(gq_out + at + split.to(tl.int64) * part, rows, n, gq * root, D)


@triton.jit(do_not_specialize=["n", "sharing", "part"])
def _side_by_side(  # noqa: PLR0913, PLR0917
    q, k, v, gout, stats, gq_out, gk_out, gv_out, part, scale, root, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,  # noqa: N803
    SPLITS: tl.constexpr, EVEN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Tiles of both kinds, where each alone would leave multiprocessors without one. KEYS: those at a time for gq."""
    if tl.program_id(2) < SPLITS:
        if tl.program_id(1) < tl.num_programs(1) // sharing:
            _columns(
                q, k, v, gout, stats, stats, gk_out, gv_out, part, scale, root, n, sharing,
                D, OWN, STEP, CAUSAL, False, SPLITS, EVEN,
            )  # fmt: skip
    else:
        _rows(q, k, v, gout, stats, gq_out, part, scale, root, n, sharing, D, OWN, KEYS, CAUSAL, SPLITS, SPLITS, EVEN)


@triton.jit(do_not_specialize=["of_queries", "of_keys", "part"])
def _add(parts, gq, gk, gv, of_queries, of_keys, part, SPLITS: tl.constexpr, OWN: tl.constexpr):  # noqa: N803, PLR0913, PLR0917
    """The splits of gq, gk and gv, which lie one after another in each part, added up."""
    at = tl.program_id(0).to(tl.int64) * OWN + tl.arange(0, OWN)
    sums = tl.zeros([OWN], tl.float32)
    for split in tl.static_range(SPLITS):
        sums += tl.load(parts + split * part + at, mask=at < part, other=0.0)
    sums = sums.to(gq.dtype.element_ty)
    tl.store(gq + at, sums, mask=at < of_queries)
    at -= of_queries
    tl.store(gk + at, sums, mask=(at >= 0) & (at < of_keys))
    at -= of_keys
    tl.store(gv + at, sums, mask=(at >= 0) & (at < of_keys))


class _Task(NamedTuple):
    """The numbers of a call, and its scratch memory."""

    batch: int
    heads: int
    kv_heads: int
    d: int
    causal: int
    n: int
    knobs: dict[str, int]
    stats: Any
    parts: Any
    part_stats: Any

    @property
    def tile(self) -> tuple[int, int]:
        """Rows that a program owns, and its warps."""
        return self.knobs["own"], self.knobs["own"] // 16

    @property
    def is_even(self) -> bool:
        """Whether tiles of any size are whole."""
        return self.n % 128 == 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of gq, gk and gv."""
        rows = self.batch * self.n * self.d
        return rows * self.heads, rows * self.kv_heads, rows * self.kv_heads


def _sizes(dims: tuple[int, ...], knobs: dict[str, int]) -> tuple[int, int, int]:
    """Numbers of scratch: lse and delta; parts of several splits, or gq where it is summed atomically; their maxima and
    totals."""
    batch, heads, kv_heads, d, _, n = dims
    rows, splits = batch * n, knobs["splits"]
    if splits > 1:
        return 2 * rows * heads, splits * rows * d * (heads + 2 * kv_heads), 2 * splits * rows * heads
    return 2 * rows * heads, knobs["gq_atomic"] * rows * heads * d, 0


def _attention(task: _Task, buffers: Sequence[Any]) -> None:
    q, k, v, gout, out = buffers[:5]
    own, warps = task.tile
    splits, sharing, scale = task.knobs["splits"], task.heads // task.kv_heads, math.log2(math.e) / math.sqrt(task.d)
    heads = task.batch * task.heads
    _forward[triton.cdiv(task.n, own), heads, splits](
        q, k, v, gout, out, task.stats, task.parts, task.part_stats, scale, task.n, sharing,
        task.d, own, STEP, task.causal, splits, task.is_even, num_warps=warps, num_stages=3,
    )  # fmt: skip
    if splits > 1:
        grid = (triton.cdiv(task.n, MERGED), heads)
        _merge[grid](gout, out, task.stats, task.parts, task.part_stats, task.n, task.d, MERGED, splits)


def _gradients(task: _Task, buffers: Sequence[Any]) -> None:
    q, k, v, gout, _, gq, gk, gv = buffers
    (own, warps), atomic, root = task.tile, task.knobs["gq_atomic"], 1 / math.sqrt(task.d)
    causal, even = task.causal, task.is_even
    sums, step = task.parts, task.knobs["step"]
    if atomic:
        task.parts.zero_()
        sums = TensorDescriptor.from_tensor(task.parts.view(-1, task.d), [step, task.d])
    tiles, part, set_up = triton.cdiv(task.n, own), sum(task.sizes), {"num_warps": warps, "num_stages": 2}
    given = (part, root * math.log2(math.e), root, task.n, task.heads // task.kv_heads, task.d, own)
    _columns[tiles, task.batch * task.kv_heads, 1](
        q, k, v, gout, task.stats, sums, gk, gv, *given, step, causal, atomic, 1, even, **set_up
    )
    if atomic:
        gq.view(-1).copy_(task.parts)
        return
    _rows[tiles, task.batch * task.heads, 1](q, k, v, gout, task.stats, gq, *given, STEP, causal, 1, 0, even, **set_up)


def _gradients_in_splits(task: _Task, buffers: Sequence[Any]) -> None:
    q, k, v, gout, _, gq, gk, gv = buffers
    (own, warps), splits, root, parts = task.tile, task.knobs["splits"], 1 / math.sqrt(task.d), task.parts
    of_queries, of_keys, _ = task.sizes
    part = sum(task.sizes)
    _side_by_side[triton.cdiv(task.n, own), task.batch * task.heads, 2 * splits](
        q, k, v, gout, task.stats, parts, parts[of_queries:], parts[of_queries + of_keys :], part,
        root * math.log2(math.e), root, task.n, task.heads // task.kv_heads,
        task.d, own, task.knobs["step"], STEP, task.causal, splits, task.is_even, num_warps=warps, num_stages=2,
    )  # fmt: skip
    _add[(triton.cdiv(part, ADDED),)](parts, gq, gk, gv, of_queries, of_keys, part, splits, ADDED)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, gout, out, gq [b,h,n,d], k, v, gk, gv [b,g,n,d]; dims: b, h, g, d, causal, n. Writes them itself."""
    stats, parts, part_stats = (torch.empty(max(1, size), device=buffers[0].device) for size in _sizes(dims, knobs))
    batch, heads, kv_heads, d, causal, n = dims
    task = _Task(batch, heads, kv_heads, d, causal, n, knobs, stats, parts, part_stats)

    def call() -> None:
        _attention(task, buffers)
        (_gradients if task.knobs["splits"] == 1 else _gradients_in_splits)(task, buffers)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes of scratch, all of it float32."""
    return 4 * sum(_sizes(dims, knobs))
