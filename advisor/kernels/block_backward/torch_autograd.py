"""variant {
  "idea": "PyTorch's autograd through rms_norm, linear, scaled_dot_product_attention and silu; the forward part lies outside of the call",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * (16 * d_model + 7 * (heads + kv_heads) * head_dim + 13 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "writes": "batch * n * (8 * d_model + 5 * (heads + kv_heads) * head_dim + 6 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 95
}

The forward pass is kept, as training has it; a call is the backward pass alone. The results are the tensors that the
library returns; see docs/add-a-variant.md.
"""  # noqa: E501

from collections.abc import Callable, Sequence
from typing import Any

import torch

EPS = 1e-5
"""As in rms.py; a variant is one file."""


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: buffers and dims as in spec.py."""
    torch.set_num_threads(threads)
    batch, heads, kv_heads, head_dim, d_model, _, causal, n = dims
    leaves = x, g1, wqkv, wo, g2, wg, wu, wd = [torch.from_numpy(one).requires_grad_() for one in buffers[:8]]
    gy, of = torch.from_numpy(buffers[8]), torch.nn.functional
    qkv = of.linear(of.rms_norm(x, (d_model,), g1, EPS), wqkv).view(batch, n, -1, head_dim).transpose(1, 2)
    q, k, v = qkv[:, :heads], qkv[:, heads:-kv_heads], qkv[:, -kv_heads:]
    out = of.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=heads != kv_heads)
    middle = x + of.linear(out.transpose(1, 2).reshape(batch, n, -1), wo)
    normal = of.rms_norm(middle, (d_model,), g2, EPS)
    y = middle + of.linear(of.silu(of.linear(normal, wg)) * of.linear(normal, wu), wd)
    return lambda: torch.autograd.grad(y, leaves, gy, retain_graph=True)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: what the forward pass keeps and what lies on the way, k and v repeated for all heads, the results."""
    batch, heads, kv_heads, head_dim, d_model, d_ff, _, n = dims
    widths = 16 * d_model + 8 * d_ff + (14 * heads + 8 * kv_heads) * head_dim
    return int(batch * n * widths * buffers[0].itemsize + sum(one.nbytes for one in buffers[9:]) + threads * (8 << 20))
