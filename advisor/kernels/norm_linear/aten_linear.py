"""variant {
  "idea": "PyTorch's rms_norm, then its linear",
  "language": "torch", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "2 * batch * n * d_model + d_model + d_model * d_out", "writes": "batch * n * (d_model + d_out)",
  "mapping": "PyTorch's and cuBLAS's own: a kernel each, rows after the norm in memory between them", "rank": 91
}

Products of float32 take no tf32: PyTorch's default. Of sixteen bits, sums stay in float32 between parts of a product.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

EPS = 1e-5
"""As in rms.py; a variant is one file."""


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x [b,n,d], g [d], w [o,d], y [b,n,o]; dims: batch, d_model, d_out, n. Returns the library's result."""
    x, g, w, _ = buffers
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    linear, norm, shape = torch.nn.functional.linear, torch.nn.functional.rms_norm, (dims[1],)
    return lambda: linear(norm(x, shape, g, EPS), w)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: rows after the norm, those in float32 on the way where PyTorch composes them, and the result."""
    item = buffers[0].itemsize
    return int(buffers[0].numel() * (item + 3 * max(4, item)) + buffers[3].numel() * item)
