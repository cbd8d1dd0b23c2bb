"""variant {
  "idea": "PyTorch calls with P materialised: product, softmax, product, then backward through autograd",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * head_dim * (5 * heads + 4 * kv_heads) + 8 * batch * heads * n * n",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads) + 5 * batch * heads * n * n",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 96
}

The results are the tensors that the library returns, as a trainer uses them; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, gout, out, gq [b,h,n,d], k, v, gk, gv [b,g,n,d]; dims: b, h, g, d, causal, n."""
    torch.set_num_threads(threads)
    batch, heads, kv_heads, d, causal, n = dims
    rows = batch, kv_heads, heads // kv_heads * n, d
    q, k, v = (torch.from_numpy(one).requires_grad_() for one in buffers[:3])
    gout = torch.from_numpy(buffers[3]).view(rows)
    future = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None

    def call() -> Any:
        scores = (q.view(rows) * d**-0.5) @ k.transpose(-1, -2)
        if future is not None:
            scores = scores.view(batch, heads, n, n).masked_fill_(future, float("-inf")).view(*rows[:3], n)
        out = torch.softmax(scores, dim=-1) @ v
        return out.detach(), *torch.autograd.grad(out, (q, k, v), gout)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: results, scaled queries and their gradient, scores, weights, their gradients and two masked, mask."""
    batch, heads, _, _, _, n = dims
    results = sum(one.nbytes for one in buffers[4:])
    return int(results + 2 * buffers[0].nbytes + 5 * batch * heads * n * n * buffers[0].itemsize + 2 * n * n)
