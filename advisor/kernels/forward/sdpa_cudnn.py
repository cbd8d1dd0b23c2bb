"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, held to its cuDNN backend",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16"], "requires": ["sm_80"],
  "arithmetic": "cache",
  "valid": ["head_dim % 8 == 0 and head_dim <= 128", "n >= 2"],
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads)", "writes": "batch * heads * n * head_dim",
  "mapping": "cuDNN's own, taken from its heuristics: a block takes a tile of query rows of a head", "rank": 90
}

PyTorch refuses this backend for one row. Weights and the result are rounded to the dtype of the operands: the
tolerance is the one of `"arithmetic": "cache"`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: q, out [b,h,n,d], k, v [b,g,n,d]; dims: b, h, g, d, causal, n. Returns the library's own result."""
    q, k, v, _ = buffers
    causal, grouped = bool(dims[4]), dims[1] > dims[2]

    def call() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: result and row statistics; as much again for a workspace that cuDNN tells to PyTorch alone."""
    batch, heads, _, d, _, n = dims
    return int(2 * batch * heads * n * (d * buffers[0].itemsize + 4))
