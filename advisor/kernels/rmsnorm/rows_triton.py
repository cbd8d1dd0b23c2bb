"""variant {
  "idea": "one program a row through Triton, the row in registers",
  "language": "triton", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "run_knobs": {"warps": [1, 2, 4, 8, 16]}, "defaults": {"warps": 4},
  "valid": ["d_model <= 16384"],
  "reads": "batch * n * d_model + d_model", "writes": "batch * n * d_model",
  "mapping": "lane: a program takes a row, padded to a power of two; lanes are Triton's", "rank": 50
}
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any

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
    """The call: x, y [b,n,d], g [d]; dims: batch, d_model, n. Writes y itself."""
    x, g, y = buffers
    batch, d_model, n = dims
    real = tl.float64 if x.itemsize == 8 else tl.float32
    block, warps = triton.next_power_of_2(d_model), knobs["warps"]

    def call() -> None:
        _norm[(batch * n,)](x, g, y, d_model, block, real, num_warps=warps)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """None."""
    return 0
