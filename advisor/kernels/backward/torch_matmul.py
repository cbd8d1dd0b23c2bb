"""variant {
  "idea": "PyTorch calls with P from out and lse materialised, then five batched products",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * head_dim * (3 * heads + 2 * kv_heads) + 6 * batch * heads * n * n",
  "writes": "batch * n * head_dim * (heads + 2 * kv_heads) + 4 * batch * heads * n * n",
  "mapping": "PyTorch's own: each operation is spread over all threads by itself", "rank": 96
}

The results are the tensors that the library returns, as a trainer uses them; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out, gout, gq [b,h,n,d], k, v, gk, gv [b,g,n,d], lse [b,h,n]; dims: b, h, g, d, causal, n.

    The query rows of all heads that share k and v are the rows of one product: [b,g,h/g n,d].
    """
    torch.set_num_threads(threads)
    batch, heads, kv_heads, d, causal, n = dims
    rows = batch, kv_heads, heads // kv_heads * n
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v, out, lse, gout = (torch.from_numpy(one) for one in buffers[:6])
        q, out, gout, lse = q.view(*rows, d), out.view(*rows, d), gout.view(*rows, d), lse.view(*rows, 1)
        turned_k, turned_v = k.transpose(-1, -2), v.transpose(-1, -2)
        future = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    scale = d**-0.5

    def call() -> Any:
        weights = ((q * scale) @ turned_k).sub_(lse).exp_()
        if future is not None:
            weights.view(batch, heads, n, n).masked_fill_(future, 0.0)
        gv = weights.transpose(-1, -2) @ gout
        scores = (gout @ turned_v).sub_((gout * out).sum(-1, keepdim=True)).mul_(weights)
        return (scores @ k).mul_(scale), (scores.transpose(-1, -2) @ q).mul_(scale), gv

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the gradients, scaled queries and gout . out, P and GS, mask."""
    batch, heads, _, _, _, n = dims
    gradients = sum(one.nbytes for one in buffers[6:])
    return int(gradients + 2 * buffers[0].nbytes + 2 * batch * heads * n * n * buffers[0].itemsize + 2 * n * n)
