"""variant {
  "idea": "RMSNorm as models write it in PyTorch: square, mean, root and products one after the other",
  "language": "torch", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "5 * batch * n * d_model + d_model", "writes": "4 * batch * n * d_model",
  "mapping": "PyTorch's own: a kernel each for widening, square, mean, and the products, rows in memory between them",
  "rank": 95
}

Rows of sixteen bits are widened first and rounded again before they meet g. Source: LlamaRMSNorm of Hugging Face's
transformers, whose lines these are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

EPS = 1e-5
"""As in rms.py; a variant is one file."""


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x, y [b,n,d], g [d]; dims: batch, d_model, n. Returns the library's own result."""
    x, g, _ = buffers
    real = x.dtype if x.itemsize >= 4 else torch.float32

    def call() -> Any:
        own = x.to(real)
        own = own * torch.rsqrt(own.pow(2).mean(-1, keepdim=True) + EPS)
        return g * own.to(x.dtype)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: rows widened, squared, scaled, and rounded; the result."""
    return int(buffers[0].numel() * (3 * max(4, buffers[0].itemsize) + 2 * buffers[0].itemsize))
