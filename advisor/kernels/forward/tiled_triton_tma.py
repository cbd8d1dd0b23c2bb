"""variant {
  "idea": "tiles of rows and keys through Triton, brought by the copy engine of Hopper",
  "language": "triton", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_90"],
  "arithmetic": "cache",
  "run_knobs": {"rows": [64, 128], "keys": [64, 128]}, "defaults": {"rows": 128, "keys": 128},
  "valid": ["head_dim == 64 or head_dim == 128", "n >= 128", "rows == 128 or keys == 64"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "mapping": "tiled: a program takes a tile of query rows of a head and walks over tiles of keys; lanes are Triton's",
  "rank": 41
}

Weights are rounded to the dtype of the operands between the two products, and so is the result. Tiles reach into the
next head where n is no multiple of theirs: what they bring from there is masked. Nothing is compiled anew for another
n.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

STAGES = {64: 3, 128: 2}
"""Rows of keys in a tile -> tiles that are on their way or in use."""


@triton.jit
def _tiles(  # noqa: PLR0913, PLR0917 (a kernel takes what it takes)
    acc, most, total, query, k, v, base, first, end, rows, n, scale,
    KEYS: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Tiles of keys from `first`, which is a multiple of KEYS, to before `end`; `base`: row of the head's first key."""
    for start in range(first, end, KEYS):
        key = k.load([base + start, 0])
        s = tl.dot(query, key.T)
        if MASKED:
            at = start + tl.arange(0, KEYS)
            seen = (at < n)[None, :]
            if CAUSAL:
                seen = seen & (at[None, :] <= rows[:, None])
            s = tl.where(seen, s, -1e30)
        now = tl.maximum(most, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - now[:, None])
        shrink = tl.exp2(most - now)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        value = v.load([base + start, 0])
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
    rows, dims = place * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    query = q.load([head * n + place * ROWS, 0])
    most = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    base = head // sharing * n
    whole = n // KEYS * KEYS  # tiles before this need no mask
    end = n
    if CAUSAL:
        whole = place * ROWS // KEYS * KEYS
        end = tl.minimum(n, place * ROWS + ROWS)
    acc, most, total = _tiles(
        acc, most, total, query, k, v, base, 0, whole, rows, n, scale, KEYS, CAUSAL, False
    )  # fmt: skip
    acc, most, total = _tiles(
        acc, most, total, query, k, v, base, whole, end, rows, n, scale, KEYS, CAUSAL, True
    )  # fmt: skip
    acc = acc / total[:, None]
    at = head.to(tl.int64) * n * D + rows[:, None] * D + dims[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=(rows < n)[:, None])


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n. Writes out itself."""
    batch, heads, kv_heads, d, causal, n = dims
    tall = (knobs["rows"], knobs["keys"], knobs["keys"])
    q, k, v = (
        TensorDescriptor.from_tensor(one.view(-1, d), [rows, d]) for one, rows in zip(buffers, tall, strict=False)
    )
    out, grid = buffers[3], (-(-n // knobs["rows"]), batch * heads)
    scale, sharing = math.log2(math.e) / math.sqrt(d), heads // kv_heads
    tiles = (d, knobs["rows"], knobs["keys"], bool(causal))
    set_up = {"num_warps": knobs["rows"] // 16, "num_stages": STAGES[knobs["keys"]]}

    def call() -> None:
        _forward[grid](q, k, v, out, scale, n, sharing, *tiles, **set_up)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: none."""
    return 0
