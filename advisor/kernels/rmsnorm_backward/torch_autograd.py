"""variant {
  "idea": "PyTorch's autograd through its own RMSNorm, of which the forward part lies outside of the call",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "2 * batch * n * d_model + d_model", "writes": "batch * n * d_model + d_model",
  "mapping": "PyTorch's own", "rank": 95
}

The forward pass is kept, as training has it; a call is the backward pass alone. The results are the tensors that the
library returns; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

EPS = 1e-5
"""As in rms.py; a variant is one file."""


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: x, gy, gx [b,n,d], g, gg [d]; dims: batch, d_model, n."""
    torch.set_num_threads(threads)
    x, g = (torch.from_numpy(one).requires_grad_() for one in buffers[:2])
    gy = torch.from_numpy(buffers[2])
    y = torch.nn.functional.rms_norm(x, (dims[1],), g, EPS)
    return lambda: torch.autograd.grad(y, (x, g), gy, retain_graph=True)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: what the forward pass keeps, the results, and products on the way."""
    return int(6 * buffers[3].nbytes)
