"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, held to its memory-efficient backend",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "valid": ["head_dim % 8 == 0"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
  "mapping": "PyTorch's own: a block takes a head of the cache and a tile of query rows", "rank": 92
}

The query heads of a group are handed over as query rows of one head. q is rounded to the cache's dtype once, outside
the call; it holds nothing else, see the spec. Weights and the result are rounded to that dtype: the tolerance is the
one of `"arithmetic": "cache"`.
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
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return scaled_dot_product_attention(q, k, v)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: q, result, and sums in float32 beside a result that is not."""
    batch, heads, _, d, _ = dims
    return int(batch * heads * (2 * d * buffers[1].itemsize + 4 * (d + 1)))
