"""variant {
  "idea": "tiles of rows and keys through Triton, products on tensor cores, a running softmax",
  "language": "triton", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "run_knobs": {"rows": [32, 64, 128], "keys": [64, 128], "warps": [4, 8]},
  "defaults": {"rows": 64, "keys": 64, "warps": 4},
  "valid": ["head_dim == 64 or head_dim == 128", "batch * heads <= 65535",
            "rows < max(64, 2 * n)", "keys == 64 or rows == 128",
            "warps == 4 or rows == 128", "rows < 128 or warps == 8 or (head_dim == 64 and keys == 64)",
            "rows > 32 or (n + 63) // 64 * batch * heads <= 132"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "mapping": "tiled: a program takes a tile of query rows of a head and walks over tiles of keys; lanes are Triton's",
  "rank": 8
}

Weights are rounded to the dtype of the operands between the two products, and so is the result. Only tiles at the
diagonal and the last one are masked. Nothing is compiled anew for another n.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl

STAGES = {64: 3, 128: 2}
"""Rows of keys in a tile -> tiles that are on their way or in use."""


@triton.jit
def _tiles(  # noqa: PLR0913, PLR0917 (a kernel takes what it takes)
    acc, most, total, query, k, v, first, end, rows, n, scale,
    D: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Tiles of keys from `first`, which is a multiple of KEYS, to before `end`."""
    dims, keys = tl.arange(0, D), tl.arange(0, KEYS)
    for start in range(first, end, KEYS):
        at = start + keys
        if MASKED:
            key = tl.load(k + at[None, :] * D + dims[:, None], mask=(at < n)[None, :], other=0.0)
        else:
            key = tl.load(k + at[None, :] * D + dims[:, None])
        s = tl.dot(query, key)
        if MASKED:
            seen = (at < n)[None, :]
            if CAUSAL:
                seen = seen & (at[None, :] <= rows[:, None])
            s = tl.where(seen, s, -1e30)
        now = tl.maximum(most, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - now[:, None])
        shrink = tl.exp2(most - now)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        if MASKED:
            value = tl.load(v + at[:, None] * D + dims[None, :], mask=(at < n)[:, None], other=0.0)
        else:
            value = tl.load(v + at[:, None] * D + dims[None, :])
        acc = tl.dot(p.to(value.dtype), value, acc)
        most = now
    return acc, most, total


@triton.jit(do_not_specialize=["n", "sharing"])
def _forward(  # noqa: PLR0913, PLR0917 (as above)
    q, k, v, out, scale, n, sharing,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    head = tl.program_id(1)
    place = tl.num_programs(0) - 1 - tl.program_id(0)  # causal: the longest first
    mine = head.to(tl.int64) * n * D
    cache = (head // sharing).to(tl.int64) * n * D
    rows, dims = place * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    at = rows[:, None] * D + dims[None, :]
    query = tl.load(q + mine + at, mask=(rows < n)[:, None], other=0.0)
    most = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    whole = n // KEYS * KEYS  # tiles before this need no mask
    end = n
    if CAUSAL:
        whole = place * ROWS // KEYS * KEYS
        end = tl.minimum(n, place * ROWS + ROWS)
    k += cache
    v += cache
    acc, most, total = _tiles(
        acc, most, total, query, k, v, 0, whole, rows, n, scale, D, KEYS, CAUSAL, False
    )  # fmt: skip
    acc, most, total = _tiles(
        acc, most, total, query, k, v, whole, end, rows, n, scale, D, KEYS, CAUSAL, True
    )  # fmt: skip
    acc = acc / total[:, None]
    tl.store(out + mine + at, acc.to(out.dtype.element_ty), mask=(rows < n)[:, None])


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n. Writes out itself."""
    q, k, v, out = buffers
    batch, heads, kv_heads, d, causal, n = dims
    grid = (-(-n // knobs["rows"]), batch * heads)
    scale, sharing = math.log2(math.e) / math.sqrt(d), heads // kv_heads
    set_up = {"num_warps": knobs["warps"], "num_stages": STAGES[knobs["keys"]]}

    def call() -> None:
        _forward[grid](q, k, v, out, scale, n, sharing, d, knobs["rows"], knobs["keys"], bool(causal), **set_up)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: none."""
    return 0
