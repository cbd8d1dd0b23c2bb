"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, held to its memory-efficient backend",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "valid": ["head_dim % 8 == 0", "heads == kv_heads"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "mapping": "PyTorch's own: a block takes a tile of query rows of a head", "rank": 92
}

This backend knows no grouped heads. In 16 bits weights and the result are rounded to the dtype of the operands: the
tolerance is the one of `"arithmetic": "cache"`. In float32 its products are those of tensor cores, each number cut
into parts so that float32's accuracy is kept.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n. Returns the library's own result."""
    q, k, v, _ = buffers
    causal = bool(dims[4])

    def call() -> Any:
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: result, and sums in float32 beside a result that is not."""
    batch, heads, _, d, _, n = dims
    return int(batch * heads * n * (d * (buffers[0].itemsize + 4) + 8))
