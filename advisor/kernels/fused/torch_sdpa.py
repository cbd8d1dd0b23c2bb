"""variant {
  "idea": "PyTorch's scaled_dot_product_attention forward, then backward through autograd",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * head_dim * (5 * heads + 4 * kv_heads)",
  "writes": "batch * n * head_dim * (2 * heads + 2 * kv_heads)",
  "mapping": "PyTorch's own: blocks of query rows forward, heads backward, static", "rank": 95
}

The results are the tensors that the library returns, as a trainer uses them; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, gout, out, gq [b,h,n,d], k, v, gk, gv [b,g,n,d]; dims: b, h, g, d, causal, n."""
    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(one).requires_grad_() for one in buffers[:3])
    gout, causal, grouped = torch.from_numpy(buffers[3]), bool(dims[4]), dims[1] != dims[2]

    def call() -> Any:
        out = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        return out.detach(), *torch.autograd.grad(out, (q, k, v), gout)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the results, row statistics, tiles a thread, and k, v and gradients of all query heads where grouped."""
    widened = 4 * buffers[0].nbytes if dims[1] != dims[2] else 0
    return int(sum(one.nbytes for one in buffers[4:]) + buffers[0].nbytes + widened + threads * (8 << 20))
