"""variant {
  "idea": "own norm, residual with norm, and gate through Triton between a library's products and its attention",
  "language": "triton", "symbol": "prepare", "dtypes": ["float64", "float32", "bfloat16", "float16"],
  "requires": ["sm_80"], "arithmetic": "cache",
  "run_knobs": {"attention": [0, 1, 2, 3], "warps": [4, 8]}, "defaults": {"attention": 2, "warps": 4},
  "valid": ["d_model <= 16384", "attention == 0 or head_dim % 8 == 0",
            "attention != 1 or (item_bytes <= 4 and heads == kv_heads)",
            "attention < 2 or (item_bytes == 2 and head_dim <= 256)", "attention != 3 or (n >= 2 and head_dim <= 128)"],
  "reads": "batch * n * (8 * d_model + 2 * (heads + kv_heads) * head_dim + 3 * d_ff) + d_model * (2 * (heads + kv_heads) * head_dim + 3 * d_ff + 2)",
  "writes": "batch * n * (6 * d_model + 2 * (heads + kv_heads) * head_dim + 3 * d_ff)",
  "mapping": "norms: a program a row; gate: a program a block of elements; products are cuBLAS's, attention is a library's own",
  "rank": 10
}

attention: the backend, which is forced: 0 plain, 1 memory-efficient, 2 flash, 3 cuDNN (not for one row). Reads and writes
are without what the plain one stores of scores. The first residual is added where the second norm reads the row, the
second one by the product before it, into a copy of it.

Products of float32 take no tf32: PyTorch's default. Of sixteen bits, sums stay in float32 between parts of a product.
"""  # noqa: E501

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

EPS = tl.constexpr(1e-5)
"""As in rms.py; a variant is one file."""

GATED = 2048
"""Elements of the gate that a program takes."""

BACKENDS = (
    SDPBackend.MATH,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)


@triton.jit
def _norm(x, g, y, D: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * D
    own = tl.load(x + row + at, mask=at < D, other=0.0).to(REAL)
    gain = tl.load(g + at, mask=at < D, other=0.0).to(REAL)
    r = 1.0 / tl.sqrt(tl.sum(own * own, 0) / D + EPS)
    tl.store(y + row + at, (own * r * gain).to(y.dtype.element_ty), mask=at < D)


@triton.jit
def _add_norm(x, mixed, g, y, D: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr):  # noqa: N803
    """mixed becomes mixed + x, y its norm."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * D
    own = tl.load(x + row + at, mask=at < D, other=0.0).to(REAL)
    own += tl.load(mixed + row + at, mask=at < D, other=0.0).to(REAL)
    gain = tl.load(g + at, mask=at < D, other=0.0).to(REAL)
    r = 1.0 / tl.sqrt(tl.sum(own * own, 0) / D + EPS)
    tl.store(mixed + row + at, own.to(mixed.dtype.element_ty), mask=at < D)
    tl.store(y + row + at, (own * r * gain).to(y.dtype.element_ty), mask=at < D)


@triton.jit(do_not_specialize=["count"])
def _gate(a, b, count, BLOCK: tl.constexpr, REAL: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(a + at, mask=at < count, other=0.0).to(REAL)
    right = tl.load(b + at, mask=at < count, other=0.0).to(REAL)
    tl.store(a + at, (left / (1.0 + tl.exp(-left)) * right).to(a.dtype.element_ty), mask=at < count)


class Sizes(NamedTuple):
    """What the kernels are compiled for, and how they are launched."""

    d_model: int
    block: int
    real: Any
    warps: int


def _sizes(x: Any, d_model: int, warps: int) -> Sizes:
    real = tl.float64 if x.itemsize == 8 else tl.float32
    return Sizes(d_model, triton.next_power_of_2(d_model), real, warps)


def prepare(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> Callable[[], Any]:
    """The call: buffers and dims as in spec.py. Writes y itself."""
    batch, heads, kv_heads, head_dim, d_model, d_ff, causal, n = dims
    rows, (g1, g2) = batch * n, (buffers[1], buffers[4])
    x, y = (buffers[place].view(rows, d_model) for place in (0, 8))
    wqkv, wo, wg, wu, wd = (buffers[place].t() for place in (2, 3, 5, 6, 7))
    products = torch.backends.cuda.matmul
    products.allow_bf16_reduced_precision_reduction = products.allow_fp16_reduced_precision_reduction = False
    backend, grouped = BACKENDS[knobs["attention"]], heads != kv_heads
    of = _sizes(x, d_model, knobs["warps"])
    attend = torch.nn.functional.scaled_dot_product_attention

    def call() -> None:
        normal = torch.empty_like(x)
        _norm[(rows,)](x, g1, normal, *of[:3], num_warps=of.warps)
        qkv = torch.mm(normal, wqkv).view(batch, n, -1, head_dim).transpose(1, 2)
        q, k, v = qkv[:, :heads], qkv[:, heads:-kv_heads], qkv[:, -kv_heads:]
        with sdpa_kernel(backend):
            out = attend(q, k, v, is_causal=bool(causal), enable_gqa=grouped)
        middle = torch.mm(out.transpose(1, 2).reshape(rows, -1), wo)
        _add_norm[(rows,)](x, middle, g2, normal, *of[:3], num_warps=of.warps)
        a, b = torch.mm(normal, wg), torch.mm(normal, wu)
        _gate[(triton.cdiv(rows * d_ff, GATED),)](a, b, rows * d_ff, GATED, of.real, num_warps=8)
        torch.addmm(middle, a, wd, out=y)

    return call


def prepare_workspace(buffers: Sequence[Any], dims: tuple[int, ...], knobs: dict[str, int]) -> int:
    """Bytes: rows of all steps; of the plain backend k and v repeated and three times the scores."""
    batch, heads, kv_heads, head_dim, d_model, d_ff, _, n = dims
    item = max(4, buffers[0].itemsize) if knobs["attention"] == 0 else buffers[0].itemsize
    scores = 0 if knobs["attention"] else 3 * batch * heads * n * n
    return int(item * (batch * n * (3 * d_model + 2 * d_ff + (6 * heads + 4 * kv_heads) * head_dim) + scores))
