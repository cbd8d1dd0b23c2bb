"""variant {
  "idea": "PyTorch's rms_norm, linear, scaled_dot_product_attention and silu, one call after the other",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * (7 * d_model + 3 * (heads + kv_heads) * head_dim + 4 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "writes": "batch * n * (6 * d_model + 3 * (heads + kv_heads) * head_dim + 4 * d_ff)",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 95
}

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
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
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        x, g1, wqkv, wo, g2, wg, wu, wd = (torch.from_numpy(one) for one in buffers[:8])
    of, grouped = torch.nn.functional, heads != kv_heads

    def call() -> Any:
        qkv = of.linear(of.rms_norm(x, (d_model,), g1, EPS), wqkv).view(batch, n, -1, head_dim).transpose(1, 2)
        q, k, v = qkv[:, :heads], qkv[:, heads:-kv_heads], qkv[:, -kv_heads:]
        out = of.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=grouped)
        middle = of.linear(out.transpose(1, 2).reshape(batch, n, -1), wo).add_(x)
        normal = of.rms_norm(middle, (d_model,), g2, EPS)
        return of.linear(of.silu(of.linear(normal, wg), inplace=True).mul_(of.linear(normal, wu)), wd).add_(middle)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: rows of all steps at their widest, k and v repeated for all heads, and tiles of attention a thread."""
    batch, heads, kv_heads, head_dim, d_model, d_ff, _, n = dims
    widths = 5 * d_model + 2 * d_ff + (6 * heads + 4 * kv_heads) * head_dim
    return int(batch * n * widths * buffers[0].itemsize + threads * (8 << 20))
