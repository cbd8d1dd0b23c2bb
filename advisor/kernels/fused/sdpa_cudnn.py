"""variant {
  "idea": "PyTorch's scaled_dot_product_attention, then backward through autograd, held to its cuDNN backend",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "valid": ["head_dim % 8 == 0 and head_dim <= 128", "n >= 2", "heads == kv_heads"],
  "reads": "batch * n * head_dim * (5 * heads + 4 * kv_heads)",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads)",
  "mapping": "PyTorch's own: cuDNN's own, taken from its heuristics",
  "rank": 101
}

PyTorch refuses this backend for one row. Weights, their gradients and the results are rounded to the
dtype: the tolerance is that of `"arithmetic": "cache"`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, gout, out, gq [b,h,n,d], k, v, gk, gv [b,g,n,d]; dims: b, h, g, d, causal, n."""
    q, k, v = (one.detach().requires_grad_() for one in buffers[:3])
    gout, causal = buffers[3], bool(dims[4])

    def call() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = scaled_dot_product_attention(q, k, v, is_causal=causal)
            return out.detach(), *torch.autograd.grad(out, (q, k, v), gout)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: results, and what cuDNN takes, which it tells PyTorch alone: taken to be as much as flash."""
    batch, heads, _, d, _, n = dims
    return int(batch * heads * n * (d * (8 * buffers[0].itemsize + 8) + 16))
