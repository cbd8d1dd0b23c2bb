"""variant {
  "idea": "tiles through Triton: forward keeps lse and delta, then gk and gv by columns, gq by rows or by atomic sums",
  "language": "triton", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "run_knobs": {"own": [64, 128], "step": [32, 64], "gq_atomic": [0, 1]},
  "defaults": {"own": 128, "step": 64, "gq_atomic": 0},
  "valid": ["head_dim == 64 or head_dim == 128"],
  "reads": "batch * n * head_dim * (4 * heads + 6 * kv_heads - gq_atomic * 2 * kv_heads) + 4 * batch * heads * n",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads + gq_atomic * 2 * heads) + 2 * batch * heads * n",
  "atomics": "gq_atomic * batch * heads * head_dim * n * (n + causal * own) // own // (1 + causal)",
  "mapping": "a program takes a tile of query rows forward, `own` rows of k and v (of query rows for gq) backward",
  "rank": 60
}

Sums of gq_atomic come in the order in which programs come. Weights and their gradients are rounded to the dtype between
products: the tolerance is the one of `"arithmetic": "cache"`. Nothing is compiled anew for another n.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

FORWARD = {64: (128, 64, 4, 3), 128: (128, 64, 8, 3)}
"""head_dim -> query rows, rows of k and v at a time, warps, stages of the forward part."""


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


@triton.jit(do_not_specialize=["n", "sharing"])
def _forward(  # noqa: PLR0913, PLR0917
    q, k, v, gout, out, stats, scale, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """out, and of each query row lse in base 2 and delta."""
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
    acc, total, most = _attend(
        acc, total, most, query, rows, k + cache, v + cache, scale, n, 0, whole, D, STEP, CAUSAL, False
    )
    acc, total, most = _attend(
        acc, total, most, query, rows, k + cache, v + cache, scale, n, whole, end, D, STEP, CAUSAL, True
    )
    acc = acc / total[:, None]
    cotangent = _load(gout + head * n * D, rows, n, D, True).to(tl.float32)
    _store(out + head * n * D, rows, n, acc, D)
    at = stats + head * 2 * n + rows
    tl.store(at, most + tl.log2(total), mask=rows < n)
    tl.store(at + n, tl.sum(acc * cotangent, 1), mask=rows < n)


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
    gk, gv, keys, values, columns, q, gout, stats, sums, scale, root, n, first, end,
    D: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, ATOMIC: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Query rows first .. end of one head into the sums of a tile of columns."""
    for start in range(first, end, STEP):
        rows = start + tl.arange(0, STEP)
        query = _load(q, rows, n, D, MASKED)
        cotangent = _load(gout, rows, n, D, MASKED)
        lse = tl.load(stats + rows, mask=rows < n, other=float("inf"))  # weights of rows past the end are zero
        delta = tl.load(stats + n + rows, mask=rows < n, other=0.0)
        seen = columns[:, None] <= rows[None, :]
        p, s = _weigh(keys, query, values, cotangent, lse[None, :], delta[None, :], scale, seen, MASKED and CAUSAL)
        gv = tl.dot(p.to(query.dtype), cotangent, gv)
        s = s.to(query.dtype)
        gk = tl.dot(s, query, gk)
        if ATOMIC:
            s = tl.where(columns[:, None] < n, s, 0.0)  # a weight past the end of the columns may be infinite
            at = sums + rows[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
            tl.atomic_add(at, tl.dot(tl.trans(s), keys) * root, mask=rows[:, None] < n, sem="relaxed")
    return gk, gv


@triton.jit(do_not_specialize=["n", "sharing"])
def _columns(  # noqa: PLR0913, PLR0917
    q, k, v, gout, stats, sums, gk_out, gv_out, scale, root, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, ATOMIC: tl.constexpr,  # noqa: N803
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
    whole = tl.maximum(diagonal, first + (n - first) // STEP * STEP)
    for shared in range(sharing):
        head = group * sharing + shared
        at = head * n * D
        own, kept = head * 2 * n + stats, sums + at
        if CAUSAL:
            gk, gv = _columns_of_head(
                gk, gv, keys, values, columns, q + at, gout + at, own, kept, scale, root, n, first, diagonal,
                D, STEP, CAUSAL, True, ATOMIC,
            )  # fmt: skip
        gk, gv = _columns_of_head(
            gk, gv, keys, values, columns, q + at, gout + at, own, kept, scale, root, n, diagonal, whole,
            D, STEP, CAUSAL, False, ATOMIC,
        )  # fmt: skip
        gk, gv = _columns_of_head(
            gk, gv, keys, values, columns, q + at, gout + at, own, kept, scale, root, n, whole, n,
            D, STEP, CAUSAL, True, ATOMIC,
        )  # fmt: skip
    _store(gk_out + cache, columns, n, gk * root, D)
    _store(gv_out + cache, columns, n, gv, D)


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


@triton.jit(do_not_specialize=["n", "sharing"])
def _rows(  # noqa: PLR0913, PLR0917
    q, k, v, gout, stats, gq_out, scale, root, n, sharing,
    D: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr,  # noqa: N803
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
    gq = _rows_of_head(
        gq, query, cotangent, rows, lse, delta, k + cache, v + cache, scale, n, 0, whole, D, STEP, CAUSAL, False
    )
    gq = _rows_of_head(
        gq, query, cotangent, rows, lse, delta, k + cache, v + cache, scale, n, whole, end, D, STEP, CAUSAL, True
    )
    _store(gq_out + at, rows, n, gq * root, D)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, gout, out, gq [b,h,n,d], k, v, gk, gv [b,g,n,d]; dims: b, h, g, d, causal, n. Writes them itself."""
    q, k, v, gout, out, gq, gk, gv = buffers
    batch, heads, kv_heads, d, causal, n = dims
    own, step, atomic = knobs["own"], knobs["step"], knobs["gq_atomic"]
    rows, columns, warps, stages = FORWARD[d]
    stats = torch.empty(batch * heads * 2 * n, device=q.device)
    sums = torch.empty(gq.shape if atomic else 1, device=q.device)
    root, sharing = 1 / math.sqrt(d), heads // kv_heads
    scale, set_up = root * math.log2(math.e), {"num_warps": own // 16, "num_stages": 2}

    def call() -> None:
        grid = (triton.cdiv(n, rows), batch * heads)
        _forward[grid](
            q, k, v, gout, out, stats, scale, n, sharing, d, rows, columns, causal, num_warps=warps, num_stages=stages
        )
        if atomic:
            sums.zero_()
        grid = (triton.cdiv(n, own), batch * kv_heads)
        _columns[grid](
            q, k, v, gout, stats, sums, gk, gv, scale, root, n, sharing, d, own, step, causal, atomic, **set_up
        )
        if atomic:
            gq.copy_(sums)
            return
        grid = (triton.cdiv(n, own), batch * heads)
        _rows[grid](q, k, v, gout, stats, gq, scale, root, n, sharing, d, own, step, causal, **set_up)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: lse and delta, and gq in float32 where it is summed atomically."""
    batch, heads, _, d, _, n = dims
    return int(4 * batch * heads * n * (2 + knobs["gq_atomic"] * d))
