"""variant {
  "idea": "as parts_triton, with both inner products of the MLP and their gate in one kernel of our own, by Hopper's copy engine",
  "language": "triton", "symbol": "prepare", "dtypes": ["bfloat16", "float16"],
  "requires": ["sm_90"], "arithmetic": "cache",
  "run_knobs": {"attention": [1, 2, 3], "columns": [64, 128]}, "defaults": {"attention": 2, "columns": 128},
  "valid": ["d_model <= 16384", "head_dim % 8 == 0", "attention != 1 or heads == kv_heads", "attention < 2 or head_dim <= 256",
            "attention != 3 or head_dim <= 128", "d_model % 8 == 0 and d_ff % 8 == 0", "d_model >= 64 and d_ff >= 128",
            "batch * n > 32 and n >= 2"],
  "reads": "batch * n * (6 * d_model + d_model * ((d_ff + columns - 1) // columns) + 2 * (heads + kv_heads) * head_dim + d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + d_ff + 2) + ((batch * n + 127) // 128) * 2 * d_model * d_ff",
  "writes": "batch * n * (6 * d_model + 2 * (heads + kv_heads) * head_dim + d_ff)",
  "mapping": "norms: a program a row; inner products: a program a tile of 128 x columns of h; other products are cuBLAS's, attention is a library's own",
  "rank": 9
}

attention: the backend, which is forced: 1 memory-efficient, 2 flash, 3 cuDNN. The first residual is added where the second
norm reads the row, the second one by the product before it, into a copy of it. Sums stay in float32 between parts of a
product.
"""  # noqa: E501

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.tools.tensor_descriptor import TensorDescriptor

EPS = tl.constexpr(1e-5)
"""As in rms.py; a variant is one file."""

TILE_ROWS, DEPTH = 128, 64
"""Rows of a tile of h, and elements of a row that are multiplied at a time."""

WARPS = 4
"""Of a row of a norm."""

TALL = 8
"""Tiles of rows that are done side by side, so that they find their weights in the cache."""

BACKENDS = {1: SDPBackend.EFFICIENT_ATTENTION, 2: SDPBackend.FLASH_ATTENTION, 3: SDPBackend.CUDNN_ATTENTION}


@triton.jit
def _norm(x, g, y, D: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * D
    own = tl.load(x + row + at, mask=at < D, other=0.0).to(tl.float32)
    gain = tl.load(g + at, mask=at < D, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(own * own, 0) / D + EPS)
    tl.store(y + row + at, (own * r * gain).to(y.dtype.element_ty), mask=at < D)


@triton.jit
def _add_norm(x, mixed, g, y, D: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """mixed becomes mixed + x, y its norm."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * D
    own = tl.load(x + row + at, mask=at < D, other=0.0).to(tl.float32)
    own += tl.load(mixed + row + at, mask=at < D, other=0.0).to(tl.float32)
    gain = tl.load(g + at, mask=at < D, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(own * own, 0) / D + EPS)
    tl.store(mixed + row + at, own.to(mixed.dtype.element_ty), mask=at < D)
    tl.store(y + row + at, (own * r * gain).to(y.dtype.element_ty), mask=at < D)


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


def _gate_of(normal: Any, wg: Any, wu: Any, columns: int) -> Callable[[], Any]:
    """A call that gives h of these rows."""
    (rows, d_model), d_ff = normal.shape, wg.shape[0]
    tile = (TILE_ROWS, columns)
    x = TensorDescriptor.from_tensor(normal, [TILE_ROWS, DEPTH])
    gate, up = (TensorDescriptor.from_tensor(one, [columns, DEPTH]) for one in (wg, wu))
    grid = (triton.cdiv(rows, TILE_ROWS) * triton.cdiv(d_ff, columns),)
    set_up = {"num_warps": columns // 16, "num_stages": 3 + columns // 128}

    def call() -> Any:
        h = torch.empty((rows, d_ff), dtype=normal.dtype, device=normal.device)
        to = TensorDescriptor.from_tensor(h, list(tile))
        _gated[grid](x, gate, up, to, rows, d_model, d_ff, *tile, DEPTH, TALL, **set_up)
        return h

    return call


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: buffers and dims as in spec.py. Writes y itself."""
    batch, heads, kv_heads, head_dim, d_model, _, causal, n = dims
    rows, (g1, g2) = batch * n, (buffers[1], buffers[4])
    x, y = (buffers[place].view(rows, d_model) for place in (0, 8))
    wqkv, wo, wd = (buffers[place].t() for place in (2, 3, 7))
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    backend, grouped = BACKENDS[knobs["attention"]], heads != kv_heads
    sizes, attend = (d_model, triton.next_power_of_2(d_model)), torch.nn.functional.scaled_dot_product_attention
    normal = torch.empty_like(x)
    gate = _gate_of(normal, buffers[5], buffers[6], knobs["columns"])

    def call() -> None:
        _norm[(rows,)](x, g1, normal, *sizes, num_warps=WARPS)
        qkv = torch.mm(normal, wqkv).view(batch, n, -1, head_dim).transpose(1, 2)
        q, k, v = qkv[:, :heads], qkv[:, heads:-kv_heads], qkv[:, -kv_heads:]
        with sdpa_kernel(backend):
            out = attend(q, k, v, is_causal=bool(causal), enable_gqa=grouped)
        middle = torch.mm(out.transpose(1, 2).reshape(rows, -1), wo)
        _add_norm[(rows,)](x, middle, g2, normal, *sizes, num_warps=WARPS)
        torch.addmm(middle, gate(), wd, out=y)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: rows of all steps."""
    batch, heads, kv_heads, head_dim, d_model, d_ff, _, n = dims
    return int(buffers[0].itemsize * batch * n * (3 * d_model + d_ff + (6 * heads + 4 * kv_heads) * head_dim))
