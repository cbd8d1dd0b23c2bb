"""variant {
  "idea": "PyTorch calls: scores, softmax and weighted sum as two batched products over the query heads of a group",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64", "bfloat16", "float16"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim + 2 * batch * heads * n",
  "writes": "batch * heads * (head_dim + 2 * n)",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 96
}

A 16-bit cache is widened to float32 in every call: products in 16 bits would be faster and wrong by far more than
float32 arithmetic explains.

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


def _tensor(array: Any) -> Any:
    """The array as a tensor without a copy; numpy has no bfloat16, so its bits come as unsigned integers."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out [b,h,d], k, v [b,g,n,d]; dims: b, h, g, d, n."""
    torch.set_num_threads(threads)
    batch, heads, kv_heads, d, _ = dims
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v = (_tensor(one) for one in buffers[:3])
        queries, turned = q.view(batch, kv_heads, heads // kv_heads, d), k.transpose(-1, -2)
    kind = q.dtype
    return lambda: torch.softmax((queries * d**-0.5) @ turned.to(kind), dim=-1) @ v.to(kind)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: scaled queries and result, scores and weights, k and v once more where they are widened."""
    batch, heads, _, _, n = dims
    item = buffers[0].itemsize
    widened = sum(one.size * item for one in buffers[1:3]) if buffers[1].itemsize != item else 0
    return int(2 * buffers[3].nbytes + 2 * batch * heads * n * item + widened)
