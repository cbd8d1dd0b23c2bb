"""variant {
  "idea": "own norm through Triton, a program a row, then a library's product",
  "language": "triton", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "run_knobs": {"warps": [1, 4, 8]}, "defaults": {"warps": 4}, "valid": ["d_model <= 16384"],
  "reads": "2 * batch * n * d_model + d_model + d_model * d_out", "writes": "batch * n * (d_model + d_out)",
  "mapping": "norm: a program a row, padded to a power of two, lanes are Triton's; product: cuBLAS's own", "rank": 15
}

Products of float32 take no tf32: PyTorch's default. Of sixteen bits, sums stay in float32 between parts of a product.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)
"""As in rms.py; a variant is one file."""


@triton.jit
def _norm(x, g, y, D: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * D
    own = tl.load(x + row + at, mask=at < D, other=0.0).to(REAL)
    gain = tl.load(g + at, mask=at < D, other=0.0).to(REAL)
    r = 1.0 / tl.sqrt(tl.sum(own * own, 0) / D + EPS)
    tl.store(y + row + at, (own * r * gain).to(y.dtype.element_ty), mask=at < D)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x [b,n,d], g [d], w [o,d], y [b,n,o]; dims: batch, d_model, d_out, n. Writes y itself."""
    batch, d_model, d_out, n = dims
    x, y = buffers[0].view(batch * n, d_model), buffers[3].view(batch * n, d_out)
    g, w = buffers[1], buffers[2].t()
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    real = tl.float64 if x.itemsize == 8 else tl.float32
    block, warps = triton.next_power_of_2(d_model), knobs["warps"]

    def call() -> None:
        normal = torch.empty_like(x)
        _norm[(batch * n,)](x, g, normal, d_model, block, real, num_warps=warps)
        torch.mm(normal, w, out=y)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: rows after the norm."""
    return int(buffers[0].numel() * buffers[0].itemsize)
