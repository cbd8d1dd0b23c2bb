"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, held to its cuDNN backend",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "run_knobs": {"as_rows": [0, 1]}, "defaults": {"as_rows": 0},
  "valid": ["as_rows == 0 or heads > kv_heads", "head_dim % 8 == 0 and head_dim <= 128", "n >= 2"],
  "reads": "batch * heads * head_dim + 2 * batch * kv_heads * n * head_dim", "writes": "batch * heads * head_dim",
  "mapping": "cuDNN's own, taken from its heuristics: a block takes a tile of query rows", "rank": 91
}

PyTorch refuses this backend for a cache of one row.

as_rows: the query heads of a group are handed over as query rows of one head (1), or as heads that the library is told
are grouped (0). q is rounded to the cache's dtype once, outside the call; it holds nothing else, see the spec. Weights
and the result are rounded to that dtype: the tolerance is the one of `"arithmetic": "cache"`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

MOST_SPLITS = 128
"""cuDNN tells its workspace to PyTorch alone; taken to be no more than that of as many splits as flash makes."""


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,d] float32, k, v [b,g,n,d]; dims: b, h, g, d, n. Returns the library's own result."""
    batch, heads, kv_heads, d, _ = dims
    _, k, v, _ = buffers
    shape = (batch, kv_heads, heads // kv_heads, d) if knobs["as_rows"] else (batch, heads, 1, d)
    q, grouped = buffers[0].to(k.dtype).view(shape), heads > kv_heads and not knobs["as_rows"]

    def call() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, enable_gqa=grouped)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: q, result, and partial results and sums of many splits."""
    batch, heads, _, d, _ = dims
    return int(batch * heads * (2 * d * buffers[1].itemsize + MOST_SPLITS * (d + 1) * 4))
