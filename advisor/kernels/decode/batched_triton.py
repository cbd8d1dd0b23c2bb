"""variant {
  "idea": "one program serves all query heads of a group through Triton, splits merged by a second small kernel",
  "language": "triton", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "run_knobs": {"block": [32, 64, 128], "splits": [1, 2, 4, 8, 16, 32, 64], "warps": [4, 8], "stages": [2, 3, 4]},
  "defaults": {"block": 64, "splits": 16, "warps": 4, "stages": 3},
  "valid": ["head_dim == 64 or head_dim == 128", "heads // kv_heads >= 2 and heads // kv_heads <= 16",
            "splits == 1 or (splits - 1) * block < n", "splits * batch * kv_heads <= 1056",
            "splits >= min(16, max(1, n // 2048))"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
  "mapping": "a program takes one split of one head of the cache and all its heads, padded to 16; lanes are Triton's",
  "rank": 50
}

Nothing is compiled anew for another n: rows are aligned by D, which is known.

A query and a weight are cut into two 16-bit numbers, high and low, as in batched_mma.cu: each product is two of
tensor cores, and float32's accuracy is kept.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _cut(x, kind: tl.constexpr, low: tl.constexpr):
    high = x.to(kind)
    return high, ((x - high.to(tl.float32)) * low).to(kind)


@triton.jit(do_not_specialize=["n", "chunk", "splits"])
def _part(  # noqa: PLR0913, PLR0917 (a kernel takes what it takes)
    q, k, v, sums, stats, scale, n, chunk, splits,
    D: tl.constexpr, G: tl.constexpr, BLOCK: tl.constexpr, LOW: tl.constexpr,  # noqa: N803
):  # fmt: skip
    split, group = tl.program_id(0), tl.program_id(1)
    heads, dims, rows = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, BLOCK)
    kind = k.dtype.element_ty
    cache = group.to(tl.int64) * n * D
    at = (group * G + heads)[:, None] * D + dims[None, :]
    query = tl.load(q + at, mask=(heads < G)[:, None], other=0.0) * scale
    high, low = _cut(query, kind, LOW)
    most = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    rest = tl.zeros([16, D], tl.float32)
    end = tl.minimum(n, (split + 1) * chunk)
    for start in range(split * chunk, end, BLOCK):
        here = (start + rows) < end
        place = (start + rows).to(tl.int64)
        keys = tl.load(k + cache + place[None, :] * D + dims[:, None], mask=here[None, :], other=0.0)
        s = tl.dot(high, keys) + tl.dot(low, keys) * (1.0 / LOW)
        s = tl.where(here[None, :], s, -1e30)
        values = tl.load(v + cache + place[:, None] * D + dims[None, :], mask=here[:, None], other=0.0)
        now = tl.maximum(most, tl.max(s, 1))
        p = tl.where(here[None, :], tl.exp2(s - now[:, None]), 0.0)
        shrink = tl.exp2(most - now)
        total = total * shrink + tl.sum(p, 1)
        p_high, p_low = _cut(p, kind, LOW)
        acc = tl.dot(p_high, values, acc * shrink[:, None])
        rest = tl.dot(p_low, values, rest * shrink[:, None])
        most = now
    o = (group * splits + split) * G + heads
    tl.store(sums + o[:, None] * D + dims[None, :], acc + rest * (1.0 / LOW), mask=(heads < G)[:, None])
    tl.store(stats + o * 2, most, mask=heads < G)
    tl.store(stats + o * 2 + 1, total, mask=heads < G)


@triton.jit
def _merge(sums, stats, out, S: tl.constexpr, D: tl.constexpr, G: tl.constexpr):  # noqa: N803
    group, head = tl.program_id(0) // G, tl.program_id(0) % G
    splits, dims = tl.arange(0, S), tl.arange(0, D)
    o = (group * S + splits) * G + head
    most = tl.load(stats + o * 2)
    weight = tl.exp2(most - tl.max(most, 0))
    total = tl.sum(weight * tl.load(stats + o * 2 + 1), 0)
    a = tl.sum(weight[:, None] * tl.load(sums + o[:, None] * D + dims[None, :]), 0) / total
    tl.store(out + (group * G + head) * D + dims, a)


def _numbers(dims: tuple[int, ...], knobs: dict[str, int]) -> tuple[int, int, int]:
    """Query heads a group, groups, rows a split: a whole number of blocks."""
    batch, heads, kv_heads, _, n = dims
    block, splits = knobs["block"], knobs["splits"]
    return heads // kv_heads, batch * kv_heads, -(-n // (splits * block)) * block


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,d] float32, k, v [b,g,n,d]; dims: b, h, g, d, n. Writes out itself."""
    q, k, v, out = buffers
    d, n = dims[3:]
    sharing, groups, chunk = _numbers(dims, knobs)
    splits = knobs["splits"]
    sums = torch.empty(groups * splits * sharing * d, device=q.device)
    stats = torch.empty(groups * splits * sharing * 2, device=q.device)
    scale, low = math.log2(math.e) / math.sqrt(d), 2048.0 if k.dtype == torch.float16 else 1.0
    set_up = {"num_warps": knobs["warps"], "num_stages": knobs["stages"]}

    def call() -> None:
        grid = (splits, groups)
        _part[grid](q, k, v, sums, stats, scale, n, chunk, splits, d, sharing, knobs["block"], low, **set_up)
        _merge[(groups * sharing,)](sums, stats, out, splits, d, sharing)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes of the partial results."""
    sharing, groups, _ = _numbers(dims, knobs)
    return 4 * groups * knobs["splits"] * sharing * (dims[3] + 2)
