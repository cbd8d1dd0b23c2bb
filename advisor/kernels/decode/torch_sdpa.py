"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention with one query row",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64", "bfloat16", "float16"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
  "mapping": "PyTorch's own: query heads, static", "rank": 95
}

A 16-bit cache is widened to float32 in every call. The call wants q in the cache's dtype, and with q, weights and
result so rounded it is wrong by far more than float32 arithmetic explains: over 100 times the tolerance at n = 2.

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention


def _tensor(array: Any) -> Any:
    """The array as a tensor without a copy; numpy has no bfloat16, so its bits come as unsigned integers."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out [b,h,d], k, v [b,g,n,d]; dims: b, h, g, d, n."""
    torch.set_num_threads(threads)
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v = (_tensor(one) for one in buffers[:3])
        row = q.unsqueeze(2)
    grouped, kind = dims[1] != dims[2], q.dtype
    if k.dtype == kind:
        return lambda: scaled_dot_product_attention(row, k, v, enable_gqa=grouped)
    return lambda: scaled_dot_product_attention(row, k.to(kind), v.to(kind), enable_gqa=grouped)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the result, a tile of scores a thread, k and v in float32, and of all query heads where grouped."""
    cache = sum(one.size for one in buffers[1:3]) * buffers[0].itemsize
    copies = (buffers[1].itemsize != buffers[0].itemsize) + (dims[1] // dims[2] if dims[1] != dims[2] else 0)
    return int(buffers[3].nbytes + copies * cache + threads * (1 << 20))
