"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention with one query row",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
  "mapping": "PyTorch's own: query heads, static", "rank": 95
}

Not with a 16-bit cache: the call wants q in the cache's dtype, and q so rounded (like the weights and the result) is
wrong by far more than float32 arithmetic explains. torch_matmul does those.

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out [b,h,d], k, v [b,g,n,d]; dims: b, h, g, d, n."""
    torch.set_num_threads(threads)
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v = (torch.from_numpy(one) for one in buffers[:3])
        row = q.unsqueeze(2)
    grouped = dims[1] != dims[2]
    return lambda: scaled_dot_product_attention(row, k, v, enable_gqa=grouped)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the result, a tile of scores a thread, k and v of all query heads where PyTorch widens them."""
    widened = sum(one.nbytes for one in buffers[1:3]) * (dims[1] // dims[2]) if dims[1] != dims[2] else 0
    return int(buffers[3].nbytes + widened + threads * (1 << 20))
