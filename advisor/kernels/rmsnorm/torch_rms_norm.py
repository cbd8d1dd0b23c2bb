"""variant {
  "idea": "one call of PyTorch's own RMSNorm",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "mapping": "PyTorch's own", "rank": 95
}

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

EPS = 1e-5
"""As in rms.py; a variant is one file."""


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: x, y [b,n,d], g [d]; dims: batch, d_model, n."""
    torch.set_num_threads(threads)
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        x, g = (torch.from_numpy(one) for one in buffers[:2])
    norm, shape = torch.nn.functional.rms_norm, (dims[1],)
    return lambda: norm(x, shape, g, EPS)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the result, squares and their means on the way, where PyTorch computes them one by one."""
    return int(3 * buffers[2].nbytes)
