"""variant {
  "idea": "the flash backward of PyTorch's scaled_dot_product_attention, from out and lse of a forward pass",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "valid": ["heads == kv_heads", "head_dim % 8 == 0 and head_dim <= 256"],
  "reads": "batch * n * heads * (6 * head_dim + 1)", "writes": "3 * batch * n * heads * head_dim",
  "atomics": "batch * heads * (n * n * (2 - causal) + n * causal) // 2 // 64 * head_dim",
  "mapping": "PyTorch's own: a block takes a tile of key rows and adds to float32 sums of gq by atomics",
  "rank": 90
}

P and GS are rounded to sixteen bits between the products: the tolerance is the one of `"arithmetic": "cache"`.
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
    forward = torch.ops.aten._scaled_dot_product_flash_attention.default
    _, stats, first_q, first_k, most_q, most_k, seed, unused, _ = forward(q, k, v, 0.0, causal)
    stats[..., :n] = lse.view(stats[..., :n].shape)
    out, gout = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in (out, gout))
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward.default

    def call() -> Any:
        return backward(gout, q, k, v, out, stats, first_q, first_k, most_q, most_k, 0.0, causal, seed, unused)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: the gradients, a forward pass's out and lse, gout and out again, sums of gq in float32."""
    rows = dims[0] * dims[1] * (dims[5] + 128)
    return int(rows * (6 * dims[3] * buffers[0].itemsize + 4 * dims[3] + 16))
