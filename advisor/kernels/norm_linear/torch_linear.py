"""variant {
  "idea": "PyTorch's own RMSNorm, then its linear",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "2 * batch * n * d_model + d_model + d_model * d_out", "writes": "batch * n * (d_model + d_out)",
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
    """The call: x [b,n,d], g [d], w [o,d], y [b,n,o]; dims: batch, d_model, d_out, n."""
    torch.set_num_threads(threads)
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        x, g, w = (torch.from_numpy(one) for one in buffers[:3])
    norm, linear, shape = torch.nn.functional.rms_norm, torch.nn.functional.linear, (dims[1],)
    return lambda: linear(norm(x, shape, g, EPS), w)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the result, normed rows, squares and their means on the way, where PyTorch computes them one by one."""
    return int(3 * buffers[0].nbytes + buffers[3].nbytes)
