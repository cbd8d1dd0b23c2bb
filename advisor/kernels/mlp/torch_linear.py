"""variant {
  "idea": "PyTorch's linear for each product, its silu and the product in place",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * (d_model + 4 * d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + 4 * d_ff)",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 95
}

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: x, y [b,n,d], wg, wu [f,d], wd [d,f]; dims: batch, d_model, d_ff, n."""
    torch.set_num_threads(threads)
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        x, wg, wu, wd = (torch.from_numpy(one) for one in buffers[:4])
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu

    def call() -> Any:
        return linear(silu(linear(x, wg), inplace=True).mul_(linear(x, wu)), wd)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the two inner products and the result."""
    batch, _, d_ff, n = dims
    return int(2 * batch * n * d_ff * buffers[0].itemsize + buffers[4].nbytes)
