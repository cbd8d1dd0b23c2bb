"""variant {
  "idea": "both inner products of a tile with the gate at their end, operands brought by the copy engine of Hopper",
  "language": "triton", "symbol": "prepare", "dtypes": ["bfloat16", "float16"],
  "requires": ["sm_90"], "arithmetic": "cache",
  "run_knobs": {"rows": [64, 128], "columns": [64, 128], "stages": [3, 4]},
  "defaults": {"rows": 128, "columns": 128, "stages": 3},
  "valid": ["d_model % 8 == 0 and d_ff % 8 == 0", "d_model >= 64 and d_ff >= 128", "batch * n > 32",
            "rows != 64 or (columns == 128 and stages == 4)"],
  "reads": "batch * n * (d_model * ((d_ff + columns - 1) // columns) + d_ff) + ((batch * n + rows - 1) // rows) * 2 * d_model * d_ff + d_model * d_ff",
  "writes": "batch * n * (d_model + d_ff)",
  "mapping": "tiled: a program takes a tile of rows x columns of h and both products of it on the tensor cores; lanes are Triton's",
  "rank": 14
}

h is stored in sixteen bits, a and b are not stored at all. The outer product is a library's, whose sums stay in float32
between its parts.
"""  # noqa: E501

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEPTH = 64
"""Elements of a row of x that are multiplied at a time."""

TALL = 8
"""Tiles of rows that are done side by side, so that they find their weights in the cache."""


@triton.jit(do_not_specialize=["rows"])
def _gated(  # noqa: PLR0913, PLR0917 (a kernel takes what it takes)
    x, wg, wu, h, rows,
    D: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, TALL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    across = tl.cdiv(F, COLUMNS)
    down = tl.cdiv(rows, ROWS)
    first = tl.program_id(0) // (TALL * across) * TALL
    tall = tl.minimum(down - first, TALL)
    row = (first + tl.program_id(0) % (TALL * across) % tall) * ROWS
    column = tl.program_id(0) % (TALL * across) // tall * COLUMNS
    a = tl.zeros([ROWS, COLUMNS], tl.float32)
    b = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, D, K):
        own = x.load([row, start])
        a = tl.dot(own, wg.load([column, start]).T, a)
        b = tl.dot(own, wu.load([column, start]).T, b)
    found = a / (1.0 + tl.exp(-a)) * b
    h.store([row, column], found.to(h.dtype))


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x, y [b,n,d], wg, wu [f,d], wd [d,f]; dims: batch, d_model, d_ff, n. Writes y itself."""
    batch, d_model, d_ff, n = dims
    y, wd, rows = buffers[4].view(batch * n, d_model), buffers[3].t(), batch * n
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    tile = (knobs["rows"], knobs["columns"])
    x = TensorDescriptor.from_tensor(buffers[0].view(rows, d_model), [tile[0], DEPTH])
    wg, wu = (TensorDescriptor.from_tensor(one, [tile[1], DEPTH]) for one in buffers[1:3])
    grid = (triton.cdiv(rows, tile[0]) * triton.cdiv(d_ff, tile[1]),)
    set_up = {"num_warps": 8 if tile == (128, 128) else 4, "num_stages": knobs["stages"]}

    def call() -> None:
        h = torch.empty((rows, d_ff), dtype=y.dtype, device=y.device)
        to = TensorDescriptor.from_tensor(h, list(tile))
        _gated[grid](x, wg, wu, to, rows, d_model, d_ff, *tile, DEPTH, TALL, **set_up)
        torch.mm(h, wd, out=y)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: h."""
    batch, _, d_ff, n = dims
    return int(batch * n * d_ff * buffers[0].itemsize)
