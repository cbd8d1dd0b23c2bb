"""variant {
  "idea": "PyTorch calls with P materialised: a batched product, softmax, a batched product",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads) + 2 * batch * heads * n * n",
  "writes": "batch * heads * (n * head_dim + 2 * n * n)",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 96
}

The result is the tensor that the library returns, as a server uses it; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n. The mask is made beforehand."""
    torch.set_num_threads(threads)
    batch, heads, kv_heads, d, causal, n = dims
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v = (torch.from_numpy(one) for one in buffers[:3])
        queries, turned = q.view(batch, kv_heads, heads // kv_heads * n, d), k.transpose(-1, -2)
        future = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None

    def call() -> Any:
        scores = (queries * d**-0.5) @ turned
        if future is not None:
            scores.view(batch, heads, n, n).masked_fill_(future, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: scaled queries and result, scores and weights, mask."""
    batch, heads, _, _, _, n = dims
    return int(2 * buffers[3].nbytes + 2 * batch * heads * n * n * buffers[0].itemsize + 2 * n * n)
