"""variant {
  "idea": "PyTorch's rms_norm, linear, scaled_dot_product_attention and silu, one call after the other",
  "language": "torch", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "run_knobs": {"attention": [0, 1, 2, 3]}, "defaults": {"attention": 2},
  "valid": ["attention == 0 or head_dim % 8 == 0", "attention != 1 or (item_bytes <= 4 and heads == kv_heads)",
            "attention < 2 or (item_bytes == 2 and head_dim <= 256)", "attention != 3 or (n >= 2 and head_dim <= 128)"],
  "reads": "batch * n * (9 * d_model + 2 * (heads + kv_heads) * head_dim + 4 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "writes": "batch * n * (6 * d_model + 2 * (heads + kv_heads) * head_dim + 4 * d_ff)",
  "mapping": "PyTorch's and its libraries' own: a kernel an operation, rows in memory between them", "rank": 91
}

attention: the backend, which is forced: 0 plain, 1 memory-efficient, 2 flash, 3 cuDNN (not for one row). Reads and writes
are without what the plain one stores of scores.

Products of float32 take no tf32: PyTorch's default. Of sixteen bits, sums stay in float32 between parts of a product.
"""  # noqa: E501

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

EPS = 1e-5
"""As in rms.py; a variant is one file."""

BACKENDS = (
    SDPBackend.MATH,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: buffers and dims as in spec.py. Returns the library's own result."""
    batch, heads, kv_heads, head_dim, d_model, _, causal, n = dims
    x, g1, wqkv, wo, g2, wg, wu, wd, _ = buffers
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    of, grouped, backend = torch.nn.functional, heads != kv_heads, BACKENDS[knobs["attention"]]

    def call() -> Any:
        qkv = of.linear(of.rms_norm(x, (d_model,), g1, EPS), wqkv).view(batch, n, -1, head_dim).transpose(1, 2)
        q, k, v = qkv[:, :heads], qkv[:, heads:-kv_heads], qkv[:, -kv_heads:]
        with sdpa_kernel(backend):
            out = of.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=grouped)
        middle = of.linear(out.transpose(1, 2).reshape(batch, n, -1), wo).add_(x)
        normal = of.rms_norm(middle, (d_model,), g2, EPS)
        return of.linear(of.silu(of.linear(normal, wg), inplace=True).mul_(of.linear(normal, wu)), wd).add_(middle)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: rows of all steps at their widest; of the plain backend k and v repeated and three times the scores."""
    batch, heads, kv_heads, head_dim, d_model, d_ff, _, n = dims
    item = max(4, buffers[0].itemsize) if knobs["attention"] == 0 else buffers[0].itemsize
    scores = 0 if knobs["attention"] else 3 * batch * heads * n * n
    return int(item * (batch * n * (5 * d_model + 2 * d_ff + (6 * heads + 4 * kv_heads) * head_dim) + scores))
