"""variant {
  "idea": "PyTorch's attention and its backward through autograd, held to the plain backend of products and softmax",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32", "float64"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "batch * n * head_dim * (8 * heads + 6 * kv_heads) + 6 * batch * heads * n * n",
  "writes": "batch * n * head_dim * (6 * heads + 2 * kv_heads) + 4 * batch * heads * n * n",
  "mapping": "PyTorch's own: a kernel each for products, scale and softmax, scores in memory between them",
  "rank": 104
}

This backend widens 16 bits to float32 in every call and rounds the results alone, so it is right by more than the
tolerance of `"arithmetic": "cache"` asks for.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, gout, out, gq [b,h,n,d], k, v, gk, gv [b,g,n,d]; dims: b, h, g, d, causal, n."""
    q, k, v = (one.detach().requires_grad_() for one in buffers[:3])
    gout, causal, grouped = buffers[3], bool(dims[4]), dims[1] != dims[2]

    def call() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            out = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
            return out.detach(), *torch.autograd.grad(out, (q, k, v), gout)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: scores, weights, their gradients and a mask; operands and gradients, scaled and widened."""
    batch, heads, _, d, _, n = dims
    item = max(4, buffers[0].itemsize)
    return int(item * batch * heads * n * (6 * n + 16 * d) + 5 * n * n)
