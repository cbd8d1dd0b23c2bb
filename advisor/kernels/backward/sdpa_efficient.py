"""variant {
  "idea": "the memory-efficient backward of PyTorch's scaled_dot_product_attention, from out and lse of a forward pass",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "valid": ["heads == kv_heads", "head_dim % 8 == 0"],
  "reads": "batch * n * heads * (6 * head_dim + 1)", "writes": "3 * batch * n * heads * head_dim",
  "atomics": "0",
  "mapping": "PyTorch's own: a block takes a tile of key rows, or splits of them, and keeps gk and gv", "rank": 92
}

lse is padded to whole warps of rows, as its forward pass leaves it. P and GS are rounded to sixteen bits between the
products: the tolerance is the one of `"arithmetic": "cache"`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out, gout, gq, k, v, gk, gv [b,h,n,d], lse [b,h,n]; dims: b, h, g, d, causal, n.

    Returns the library's own results. A forward pass of the library's, outside of the call, says how it lays out lse
    and what else it hands to its backward; out, lse and gout are brought to that layout here.
    """
    q, k, v, out, lse, gout = buffers[:6]
    causal, n = bool(dims[4]), dims[5]
    forward = torch.ops.aten._scaled_dot_product_efficient_attention.default
    _, stats, seed, place = forward(q, k, v, None, True, 0.0, causal)
    stats[..., :n] = lse.view(stats[..., :n].shape)
    out, gout = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in (out, gout))
    backward = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default

    def call() -> Any:
        return backward(gout, q, k, v, None, out, stats, seed, place, 0.0, [True, True, True, False], causal)[:3]

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: the gradients, a forward pass's out and lse, gout and out again, float32 sums of splits of keys."""
    rows = dims[0] * dims[1] * (dims[5] + 128)
    return int(rows * (14 * dims[3] * buffers[0].itemsize + 4 * dims[3] + 16))
