"""variant {
  "idea": "both inner products of a tile in one kernel through Triton with the gate at their end; the outer one is a library's",
  "language": "triton", "symbol": "prepare", "dtypes": ["bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "run_knobs": {"rows": [16, 64, 128], "columns": [64, 128], "stages": [3, 4]},
  "defaults": {"rows": 128, "columns": 128, "stages": 3},
  "valid": ["d_model >= 16 and d_ff >= 16", "(rows == 16) == (batch * n <= 32)",
            "rows != 64 or (columns == 128 and stages == 4)"],
  "reads": "batch * n * (d_model * ((d_ff + columns - 1) // columns) + d_ff) + ((batch * n + rows - 1) // rows) * 2 * d_model * d_ff + d_model * d_ff",
  "writes": "batch * n * (d_model + d_ff)",
  "mapping": "tiled: a program takes a tile of rows x columns of h and both products of it on the tensor cores; lanes are Triton's",
  "rank": 16
}

h is stored in sixteen bits, a and b are not stored at all. The outer product's sums stay in float32 between its parts.
"""  # noqa: E501

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

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
    row = first + tl.program_id(0) % (TALL * across) % tall
    column = tl.program_id(0) % (TALL * across) // tall
    i = row.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    f = column * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, K)
    left = x + (i % rows)[:, None] * D + k[None, :]
    gate = wg + (f % F)[None, :] * D + k[:, None]
    up = wu + (f % F)[None, :] * D + k[:, None]
    a = tl.zeros([ROWS, COLUMNS], tl.float32)
    b = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, D, K):
        if D % K == 0:
            own, its, other = tl.load(left + start), tl.load(gate + start), tl.load(up + start)
        else:
            here = start + k < D
            own = tl.load(left + start, mask=here[None, :], other=0.0)
            its = tl.load(gate + start, mask=here[:, None], other=0.0)
            other = tl.load(up + start, mask=here[:, None], other=0.0)
        a = tl.dot(own, its, a)
        b = tl.dot(own, other, b)
    found = a / (1.0 + tl.exp(-a)) * b
    tl.store(h + i[:, None] * F + f[None, :], found.to(h.dtype.element_ty), mask=(i < rows)[:, None] & (f < F)[None, :])


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: x, y [b,n,d], wg, wu [f,d], wd [d,f]; dims: batch, d_model, d_ff, n. Writes y itself."""
    batch, d_model, d_ff, n = dims
    x, wg, wu = buffers[:3]
    y, wd = buffers[4].view(batch * n, d_model), buffers[3].t()
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    tile = (knobs["rows"], knobs["columns"])
    grid = (triton.cdiv(batch * n, tile[0]) * triton.cdiv(d_ff, tile[1]),)
    set_up = {"num_warps": 8 if tile == (128, 128) else 4, "num_stages": knobs["stages"]}

    def call() -> None:
        h = torch.empty((batch * n, d_ff), dtype=x.dtype, device=x.device)
        _gated[grid](x, wg, wu, h, batch * n, d_model, d_ff, *tile, DEPTH, TALL, **set_up)
        torch.mm(h, wd, out=y)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: h."""
    batch, _, d_ff, n = dims
    return int(batch * n * d_ff * buffers[0].itemsize)
