"""variant {
  "idea": "library products with our own gate between them: one kernel through Triton for silu and the product",
  "language": "triton", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "run_knobs": {"block": [1024, 2048], "warps": [4, 8]}, "defaults": {"block": 1024, "warps": 8},
  "reads": "batch * n * (2 * d_model + 3 * d_ff) + 3 * d_model * d_ff", "writes": "batch * n * (d_model + 3 * d_ff)",
  "mapping": "products are cuBLAS's own; of the gate a program takes a block of elements, lanes are Triton's",
  "rank": 15
}

Products of float32 take no tf32: PyTorch's default. Of sixteen bits, sums stay in float32 between parts of a product.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def _gate(a, b, count, BLOCK: tl.constexpr, REAL: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(a + at, mask=at < count, other=0.0).to(REAL)
    right = tl.load(b + at, mask=at < count, other=0.0).to(REAL)
    tl.store(a + at, (left / (1.0 + tl.exp(-left)) * right).to(a.dtype.element_ty), mask=at < count)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x, y [b,n,d], wg, wu [f,d], wd [d,f]; dims: batch, d_model, d_ff, n. Writes y itself."""
    batch, d_model, d_ff, n = dims
    x, y = (buffers[place].view(batch * n, d_model) for place in (0, 4))
    wg, wu, wd = (one.t() for one in buffers[1:4])
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    count, block = batch * n * d_ff, knobs["block"]
    real = tl.float64 if x.itemsize == 8 else tl.float32

    def call() -> None:
        a, b = torch.mm(x, wg), torch.mm(x, wu)
        _gate[(triton.cdiv(count, block),)](a, b, count, block, real, num_warps=knobs["warps"])
        torch.mm(a, wd, out=y)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: the two inner products."""
    batch, _, d_ff, n = dims
    return int(2 * batch * n * d_ff * buffers[0].itemsize)
