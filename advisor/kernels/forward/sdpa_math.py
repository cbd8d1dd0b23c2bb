"""variant {
  "idea": "one call of PyTorch's scaled_dot_product_attention, held to its plain backend",
  "language": "torch", "symbol": "prepare", "dtypes": ["float16", "bfloat16", "float32", "float64"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "reads": "batch * n * head_dim * (heads + 2 * kv_heads) + 2 * batch * heads * n * n",
  "writes": "batch * heads * n * head_dim + 2 * batch * heads * n * n",
  "mapping": "PyTorch's and cuBLAS's own: a kernel each for products, scale, mask, softmax, scores in memory between",
  "rank": 93
}

Causal, it computes all scores and masks them. It widens 16-bit operands to float32 in every call and rounds the result
alone, so it is right by more than the tolerance of `"arithmetic": "cache"` asks for. Products in float32 are
float32's: PyTorch allows tf32 only where it is told to.
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
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: k and v scaled, widened from 16 bits and repeated; scores, mask and weights; q and result."""
    batch, heads, _, d, _, n = dims
    item = max(4, buffers[0].itemsize)
    return int(item * batch * heads * n * (8 * d + 3 * n) + item * n * n)
