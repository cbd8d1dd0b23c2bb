"""variant {
  "idea": "PyTorch's batched matrix products, five of them, P and GS in memory between them",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32", "float64"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "batch * n * head_dim * (5 * heads + 2 * kv_heads) + 10 * batch * heads * n * n",
  "writes": "batch * n * head_dim * (heads + 2 * kv_heads) + 7 * batch * heads * n * n",
  "mapping": "PyTorch's and cuBLAS's own: a kernel each for products, exponential and GS", "rank": 93
}

Beside 16-bit operands the products give float32, so that no sum is kept in 16 bits. P and GS are rounded to 16 bits to
be multiplied: the tolerance is the one of `"arithmetic": "cache"`. Causal: all pairs are computed, those that are not
seen become zero.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def _product(a: Any, b: Any) -> Any:
    """a b for each of a batch, in float32 where the operands have 16 bits."""
    return torch.bmm(a, b, out_dtype=torch.float32) if a.itemsize == 2 else torch.bmm(a, b)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out, gout, gq [b,h,n,d], k, v, gk, gv [b,g,n,d], lse [b,h,n]; dims: b, h, g, d, causal, n.

    The query rows of all heads that share k and v are the rows of one product: [b*g, h/g*n, d].
    """
    batch, heads, kv_heads, d, causal, n = dims
    groups, rows, scale = batch * kv_heads, heads // kv_heads * n, d**-0.5
    q, out, gout = (buffers[place].view(groups, rows, d) for place in (0, 3, 5))
    k, v = (one.view(groups, n, d) for one in buffers[1:3])
    lse, kind = buffers[4].view(groups, rows, 1), q.dtype
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu_(1) if causal else None

    def call() -> Any:
        weights = _product(q, k.transpose(1, 2)).mul_(scale).sub_(lse).exp_()
        if future is not None:
            weights.view(groups, rows // n, n, n).masked_fill_(future, 0.0)
        gv = _product(weights.to(kind).transpose(1, 2), gout)
        delta = (gout.to(weights.dtype) * out).sum(-1, keepdim=True)
        scores = _product(gout, v.transpose(1, 2)).sub_(delta).mul_(weights).to(kind)
        gq, gk = _product(scores, k).mul_(scale), _product(scores.transpose(1, 2), q).mul_(scale)
        return gq.to(kind), gk.to(kind), gv.to(kind)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: gradients twice and gout * out; P, GS, and both rounded; the mask."""
    item, pairs = max(4, buffers[0].itemsize), dims[0] * dims[1] * dims[5] ** 2
    rows = sum(one.numel() for one in (*buffers[6:], *buffers[6:], buffers[0], buffers[0]))
    return int(item * (rows + 4 * pairs) + dims[5] ** 2)
