"""variant {
  "idea": "PyTorch's autograd through linear, silu and product, of which the forward part lies outside of the call",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * (2 * d_model + 10 * d_ff) + 3 * d_model * d_ff",
  "writes": "batch * n * (2 * d_model + 5 * d_ff) + 3 * d_model * d_ff",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 95
}

The forward pass is kept, as training has it; a call is the backward pass alone. The results are the tensors that the
library returns; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: x, gy, gx [b,n,d], wg, wu, gwg, gwu [f,d], wd, gwd [d,f]; dims: batch, d_model, d_ff, n."""
    torch.set_num_threads(threads)
    leaves = x, wg, wu, wd = [torch.from_numpy(one).requires_grad_() for one in buffers[:4]]
    gy = torch.from_numpy(buffers[4])
    linear = torch.nn.functional.linear
    y = linear(torch.nn.functional.silu(linear(x, wg)) * linear(x, wu), wd)
    return lambda: torch.autograd.grad(y, leaves, gy, retain_graph=True)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: four arrays [b,n,f] that the forward pass keeps and four on the way, y, results, two parts of gx."""
    batch, _, d_ff, n = dims
    results = sum(one.nbytes for one in buffers[5:])
    return int(8 * batch * n * d_ff * buffers[0].itemsize + results + 3 * buffers[5].nbytes)
