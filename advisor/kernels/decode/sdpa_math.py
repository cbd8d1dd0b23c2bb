"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, held to its plain backend of products and a softmax",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32", "float64"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim + 2 * batch * heads * n",
  "writes": "batch * heads * (head_dim + 2 * n)",
  "mapping": "PyTorch's own: a kernel each for products, scale and softmax, scores in memory between them", "rank": 94
}

The query heads of a group are handed over as query rows of one head. q is rounded to the cache's dtype once, outside
the call; it holds nothing else, see the spec. This backend widens a 16-bit cache to float32 in every call and rounds
the result alone, so it is right by more than the tolerance of `"arithmetic": "cache"` asks for.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,d], k, v [b,g,n,d]; dims: b, h, g, d, n. Returns the library's own result."""
    batch, heads, kv_heads, d, _ = dims
    _, k, v, _ = buffers
    q = buffers[0].to(k.dtype).view(batch, kv_heads, heads // kv_heads, d)

    def call() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(q, k, v)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: k and v scaled and, from 16 bits, widened before; scores and weights; q and result, widened too."""
    batch, heads, kv_heads, d, n = dims
    item = max(4, buffers[1].itemsize)
    return int(item * (4 * batch * kv_heads * n * d + 3 * batch * heads * n + 4 * batch * heads * d))
