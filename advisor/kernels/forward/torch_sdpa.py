"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, its fused kernel for CPUs",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "mapping": "PyTorch's own: blocks of query rows of all heads, static", "rank": 95
}

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n."""
    torch.set_num_threads(threads)
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v = (torch.from_numpy(one) for one in buffers[:3])
    causal, grouped = bool(dims[4]), dims[1] != dims[2]
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the result, and a tile of scores (128 by 512, 8 bytes) a thread. Whole k and v where they are widened."""
    widened = 2 * buffers[3].nbytes if dims[1] != dims[2] else 0
    return int(buffers[3].nbytes + widened + threads * (1 << 20))
