"""variant {
  "idea": "PyTorch's linear for each product, its silu and the product in place",
  "language": "torch", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "batch * n * (2 * d_model + 4 * d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + 4 * d_ff)",
  "mapping": "PyTorch's and cuBLAS's own: a kernel each for products, silu and gate, h in memory between them",
  "rank": 91
}

Products of float32 take no tf32: PyTorch's default. Of sixteen bits, sums stay in float32 between parts of a product.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x, y [b,n,d], wg, wu [f,d], wd [d,f]; dims: batch, d_model, d_ff, n. Returns the result."""
    x, wg, wu, wd, _ = buffers
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu
    return lambda: linear(silu(linear(x, wg), inplace=True).mul_(linear(x, wu)), wd)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: the two inner products and the result."""
    batch, d_model, d_ff, n = dims
    return int(batch * n * (2 * d_ff + d_model) * buffers[0].itemsize)
