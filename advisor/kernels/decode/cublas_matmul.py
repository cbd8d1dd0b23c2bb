"""variant {
  "idea": "PyTorch's batched matrix products over the query heads of a group, a softmax of all scores between them",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32", "float64"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim + 3 * batch * heads * n",
  "writes": "batch * heads * (head_dim + 3 * n)",
  "mapping": "PyTorch's and cuBLAS's own: a kernel each for products, scale and softmax, scores in memory between them",
  "rank": 93
}

Beside a 16-bit cache both products take 16-bit operands and give float32, so that scores are not rounded and no sum is
kept in 16 bits. q is rounded once, outside the call; it holds nothing else, see the spec. Weights and the result are
rounded to the cache's dtype: the tolerance is the one of `"arithmetic": "cache"`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def _product(a: Any, b: Any) -> Any:
    """a b for each of a batch, in float32 where the operands have 16 bits."""
    return torch.bmm(a, b, out_dtype=torch.float32) if a.itemsize == 2 else torch.bmm(a, b)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,d], k, v [b,g,n,d]; dims: b, h, g, d, n. Returns the library's own result."""
    batch, heads, kv_heads, d, n = dims
    _, k, v, _ = buffers
    kind, groups = k.dtype, batch * kv_heads
    q = buffers[0].to(kind).view(groups, heads // kv_heads, d)
    turned, values = k.view(groups, n, d).transpose(1, 2), v.view(groups, n, d)

    def call() -> Any:
        scores = _product(q, turned).mul_(d**-0.5)
        return _product(torch.softmax(scores, dim=-1).to(kind), values).to(kind)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: q, scores, weights, those rounded, the result and that rounded."""
    batch, heads, _, d, n = dims
    item = max(4, buffers[1].itemsize)
    return int(batch * heads * item * (3 * n + 3 * d))
