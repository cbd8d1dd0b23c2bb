"""variant {
  "idea": "oneDNN through PyTorch: weights packed once, silu and the product fused into the linears",
  "language": "python", "symbol": "prepare", "dtypes": ["float32"],
  "reads": "batch * n * (d_model + 2 * d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + 2 * d_ff)",
  "mapping": "oneDNN's own", "rank": 96
}

The operators are those that PyTorch's own compiler calls for a frozen linear. The result is the tensor that the library
returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: x, y [b,n,d], wg, wu [f,d], wd [d,f]; dims: batch, d_model, d_ff, n. Weights are packed beforehand."""
    torch.set_num_threads(threads)
    batch, d_model, _, n = dims
    linear, pack = torch.ops.mkldnn._linear_pointwise, torch.ops.mkldnn._reorder_linear_weight
    times = linear.binary
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        x = torch.from_numpy(buffers[0]).view(batch * n, d_model)
        wg, wu, wd = (pack(torch.from_numpy(one), batch * n) for one in buffers[1:4])

    def call() -> Any:
        gate = linear(x, wg, None, "swish", [], "")
        return linear(times(x, gate, wu, None, "mul"), wd, None, "none", [], "")

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: packed weights, the two inner products and the result."""
    batch, _, d_ff, n = dims
    weights = sum(one.nbytes for one in buffers[1:4])
    return int(weights + 2 * batch * n * d_ff * buffers[0].itemsize + buffers[4].nbytes)
