"""variant {
  "idea": "PyTorch's own backward of scaled_dot_product_attention, called with out and lse of the forward pass",
  "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "batch * n * (head_dim * (3 * heads + 2 * kv_heads) + heads)",
  "writes": "batch * n * head_dim * (heads + 2 * kv_heads)",
  "mapping": "PyTorch's own: heads, static", "rank": 95
}

The operator is what autograd calls for a forward pass on a CPU; it is in PyTorch since 2.2, under a private name, so a
PyTorch that changed it gives this variant a status instead of a time. Heads of k and v are repeated for the query heads
that share them, and the gradients summed, inside the call: not all versions take fewer.

The results are the tensors that the library returns, as a trainer uses them; see docs/add-a-variant.md.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> Callable[[], Any]:
    """The call: q, out, gout, gq [b,h,n,d], k, v, gk, gv [b,g,n,d], lse [b,h,n]; dims: b, h, g, d, causal, n."""
    torch.set_num_threads(threads)
    batch, heads, kv_heads, d, causal, n = dims
    with torch.inference_mode():  # so made, tensors leave autograd out of every later call
        q, k, v, out, lse, gout = (torch.from_numpy(one) for one in buffers[:6])
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    if heads == kv_heads:
        return lambda: backward(gout, q, k, v, out, lse, 0.0, bool(causal))
    sharing = heads // kv_heads

    def call() -> Any:
        wide_k, wide_v = k.repeat_interleave(sharing, 1), v.repeat_interleave(sharing, 1)
        gq, gk, gv = backward(gout, q, wide_k, wide_v, out, lse, 0.0, bool(causal))
        return gq, *(one.reshape(batch, kv_heads, sharing, n, d).sum(2) for one in (gk, gv))

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], threads: int) -> int:
    """Bytes: the gradients, tiles a thread, and with grouped heads k, v and their gradients of all query heads."""
    widened = 4 * buffers[0].nbytes if dims[1] != dims[2] else 0
    return int(sum(one.nbytes for one in buffers[6:]) + widened + threads * (8 << 20))
