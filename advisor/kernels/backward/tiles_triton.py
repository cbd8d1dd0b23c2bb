"""variant {
  "idea": "tiles through Triton, P recomputed: gk and gv by tiles of keys; gq by tiles of queries beside them, or added by float32 atomics in the order in which blocks come",
  "language": "triton", "symbol": "prepare", "dtypes": ["bfloat16", "float16"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "run_knobs": {"rows": [32, 64, 128], "keys": [32, 64, 128], "warps": [4, 8], "stages": [2, 3], "gq_atomic": [0, 1]},
  "defaults": {"rows": 64, "keys": 128, "warps": 8, "stages": 2, "gq_atomic": 0},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * kv_heads <= 65535",
            "keys > 32 or rows == 64 and warps == 4 and head_dim == 64",
            "keys != 64 or warps == 4 and rows <= 64 or warps == 8 and rows == 128 and head_dim == 128",
            "keys != 128 or warps == 8 or rows == 32 and head_dim == 64",
            "keys != 128 or rows < 128 or head_dim == 64", "keys != 128 or rows > 32 or warps == 4 or head_dim == 128",
            "(rows == 32) == (stages == 3) or rows == 64 and keys == 64 and head_dim == 128"],
  "reads": "batch * heads * n * (6 * head_dim + 3) + 2 * batch * kv_heads * n * head_dim + gq_atomic * batch * heads * n * head_dim",
  "writes": "batch * n * (head_dim * (heads + 2 * kv_heads) + heads) + gq_atomic * batch * heads * n * head_dim",
  "atomics": "gq_atomic * (batch * heads * (n * n * (2 - causal) + n * causal) // 2 // keys * head_dim)",
  "mapping": "tiled: a program takes a tile of keys of one head of k and v, or a tile of queries; lanes are Triton's",
  "rank": 50
}

Each of the two kinds of program computes the scores that it needs: seven products where atomics need five.

P and GS are rounded to sixteen bits between the products: the tolerance is the one of `"arithmetic": "cache"`.
"""  # noqa: E501 (a header's expressions are lines)

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

DELTA_ROWS = 32
"""Rows of gout . out that one program makes."""


@triton.jit
def _rows(pointer, rows, n, D: tl.constexpr, EVEN: tl.constexpr):  # noqa: N803
    """Rows of a head, those past the last as zeros."""
    at = pointer + rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(at) if EVEN else tl.load(at, mask=(rows < n)[:, None], other=0.0)


@triton.jit
def _numbers(pointer, rows, n, EVEN: tl.constexpr):  # noqa: N803
    return tl.load(pointer + rows) if EVEN else tl.load(pointer + rows, mask=rows < n, other=0.0)


@triton.jit
def _store(pointer, rows, n, values, D: tl.constexpr):  # noqa: N803
    at = pointer + rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(at, values.to(pointer.dtype.element_ty), mask=(rows < n)[:, None])


@triton.jit
def _delta(out, gout, delta, sums, total, D: tl.constexpr, ROWS: tl.constexpr, ATOMIC: tl.constexpr):  # noqa: N803, PLR0913, PLR0917
    """gout . out of rows of all heads, and the sums of gq made zero."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    left, right = _rows(out, rows, total, D, False), _rows(gout, rows, total, D, False)
    tl.store(delta + rows, tl.sum(left.to(tl.float32) * right.to(tl.float32), 1), mask=rows < total)
    if ATOMIC:
        _store(sums, rows, total, tl.zeros([ROWS, D], tl.float32), D)


@triton.jit
def _add_queries(  # noqa: PLR0913, PLR0917
    acc_k, acc_v, key, value, columns, q, gout, lse, delta, sums, first, end, scale, n,
    D: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, EVEN: tl.constexpr, ATOMIC: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """What query rows first .. end - 1 of one head add to a tile of gk and gv; gk is not scaled."""
    for start in range(first, end, ROWS):
        rows = start + tl.arange(0, ROWS)
        query, cotangent = _rows(q, rows, n, D, EVEN), _rows(gout, rows, n, D, EVEN)
        low = _numbers(lse, rows, n, EVEN) * 1.4426950408889634
        p = tl.exp2(tl.dot(key, tl.trans(query)) * (scale * 1.4426950408889634) - low[None, :])
        if MASKED:
            p = tl.where(columns[:, None] <= rows[None, :], p, 0.0)
        if not EVEN:  # past the last key 0 - lse may overflow
            p = tl.where((columns < n)[:, None], p, 0.0)
        acc_v = tl.dot(p.to(cotangent.dtype), cotangent, acc_v)
        slope = p * (tl.dot(value, tl.trans(cotangent)) - _numbers(delta, rows, n, EVEN)[None, :])
        slope = slope.to(query.dtype)
        acc_k = tl.dot(slope, query, acc_k)
        if ATOMIC:
            part = tl.dot(tl.trans(slope), key) * scale
            at = sums + rows[:, None] * D + tl.arange(0, D)[None, :]
            tl.atomic_add(at, part, mask=(rows < n)[:, None], sem="relaxed")
    return acc_k, acc_v


@triton.jit
def _add_keys(  # noqa: PLR0913, PLR0917
    acc, query, cotangent, low, delta, rows, k, v, first, end, scale, n,
    D: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, EVEN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """What key rows first .. end - 1 add to a tile of gq, not scaled."""
    for start in range(first, end, KEYS):
        columns = start + tl.arange(0, KEYS)
        key, value = _rows(k, columns, n, D, EVEN), _rows(v, columns, n, D, EVEN)
        p = tl.exp2(tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634) - low[:, None])
        if MASKED:
            p = tl.where(columns[None, :] <= rows[:, None], p, 0.0)
        if not EVEN:
            p = tl.where((columns < n)[None, :], p, 0.0)
        slope = p * (tl.dot(cotangent, tl.trans(value)) - delta[:, None])
        acc = tl.dot(slope.to(key.dtype), key, acc)
    return acc


@triton.jit(do_not_specialize=["n"])
def _tiles(  # noqa: PLR0913, PLR0917
    q, k, v, lse, delta, gout, gq, gk, gv, sums, scale, n,
    D: tl.constexpr, SHARING: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,  # noqa: N803
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, ATOMIC: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Programs 0 .. tiles - 1: tiles of KEYS keys; those after them: tiles of KEYS queries, head by head."""
    tile, group, tiles = tl.program_id(0), tl.program_id(1), tl.cdiv(n, KEYS)
    cache = group.to(tl.int64) * n * D
    if tile < tiles:
        columns = tile * KEYS + tl.arange(0, KEYS)
        key, value = _rows(k + cache, columns, n, D, EVEN), _rows(v + cache, columns, n, D, EVEN)
        acc_k, acc_v = tl.zeros([KEYS, D], tl.float32), tl.zeros([KEYS, D], tl.float32)
        for share in range(SHARING):
            head = (group * SHARING + share).to(tl.int64) * n
            whole = 0
            if CAUSAL:  # those from `first` on are seen in part, those from `whole` on see the whole tile
                first, whole = tile * KEYS // ROWS * ROWS, tl.minimum(tl.cdiv((tile + 1) * KEYS, ROWS) * ROWS, n)
                acc_k, acc_v = _add_queries(
                    acc_k, acc_v, key, value, columns, q + head * D, gout + head * D, lse + head, delta + head,
                    sums + head * D, first, whole, scale, n, D, ROWS, True, EVEN, ATOMIC,
                )  # fmt: skip
            acc_k, acc_v = _add_queries(
                acc_k, acc_v, key, value, columns, q + head * D, gout + head * D, lse + head, delta + head,
                sums + head * D, whole, n, scale, n, D, ROWS, False, EVEN, ATOMIC,
            )  # fmt: skip
        _store(gk + cache, columns, n, acc_k * scale, D)
        _store(gv + cache, columns, n, acc_v, D)
    elif not ATOMIC:
        head = (group * SHARING + (tile - tiles) // tiles).to(tl.int64) * n
        own = tiles - 1 - (tile - tiles) % tiles  # causal: the longest first
        rows = own * KEYS + tl.arange(0, KEYS)
        query, cotangent = _rows(q + head * D, rows, n, D, EVEN), _rows(gout + head * D, rows, n, D, EVEN)
        low = _numbers(lse + head, rows, n, EVEN) * 1.4426950408889634
        of_rows = _numbers(delta + head, rows, n, EVEN)
        acc, whole = tl.zeros([KEYS, D], tl.float32), n
        if CAUSAL:
            whole = own * KEYS // ROWS * ROWS
        acc = _add_keys(
            acc, query, cotangent, low, of_rows, rows, k + cache, v + cache, 0, whole, scale, n, D, ROWS, False, EVEN,
        )  # fmt: skip
        if CAUSAL:
            end = tl.minimum((own + 1) * KEYS, n)
            acc = _add_keys(
                acc, query, cotangent, low, of_rows, rows, k + cache, v + cache, whole, end, scale, n, D, ROWS, True,
                EVEN,
            )  # fmt: skip
        _store(gq + head * D, rows, n, acc * scale, D)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out, gout, gq [b,h,n,d], k, v, gk, gv [b,g,n,d], lse [b,h,n]; dims: b, h, g, d, causal, n."""
    q, k, v, out, lse, gout, gq, gk, gv = buffers
    batch, heads, kv_heads, d, causal, n = dims
    rows, keys, atomic, sharing = knobs["rows"], knobs["keys"], bool(knobs["gq_atomic"]), heads // kv_heads
    total, tiles, even = batch * heads * n, -(-n // keys), n % max(rows, keys) == 0
    delta = torch.empty(total, dtype=torch.float32, device=q.device)
    sums = torch.empty(gq.shape if atomic else 1, dtype=torch.float32, device=q.device)
    grid = (tiles if atomic else tiles * (1 + sharing), batch * kv_heads)
    fixed = (d, sharing, rows, keys, bool(causal), even, atomic)
    set_up = {"num_warps": knobs["warps"], "num_stages": knobs["stages"]}

    def call() -> None:
        _delta[(-(-total // DELTA_ROWS),)](out, gout, delta, sums, total, d, DELTA_ROWS, atomic)
        _tiles[grid](q, k, v, lse, delta, gout, gq, gk, gv, sums, 1 / math.sqrt(d), n, *fixed, **set_up)
        if atomic:
            gq.copy_(sums)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes of delta, and of the sums of gq in float32."""
    batch, heads, _, d, _, n = dims
    return 4 * batch * heads * n * (1 + knobs["gq_atomic"] * d) + 4
