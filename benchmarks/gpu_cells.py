"""What benchmarks/gpu.py measures: cells, each a kernel in one dtype and shape with its n, the most important first."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import NamedTuple

from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.header import GPU_LANGUAGES, Variant
from advisor.kernels.registry import spec
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import variants
from advisor.records import Problem

REGIME = "cold"
FLOOR_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_floor")

ATTENTION = ("forward", "backward", "fused")
LAYERS = ("rmsnorm", "mlp", "block")
CHAIN = (*ATTENTION, *LAYERS)

SIZES = (1, 16, 64, 256, 1024, 1919, 1920, 1921, 2808, 4094, 4095, 4096, 16384, 65536, 262144, 1048576)
"""Of decode. From one row to a million; 1919 to 1921 and 4095 lie around what other programs tile by, 2808 is no power
of two."""

DOUBLING = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
FEW = (64, 512, 2048, 8192)

SHORT = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}

HEADS = {
    "P": {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64},
    "S": {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128},
}
"""The paper's shape, and one that is served."""

ROWS = {"P": {"d_model": 64, "d_ff": 256}, "S": {"d_model": 2048, "d_ff": 8192}}
"""Of the layers: the paper's, and as wide as the served heads together."""


class Cell(NamedTuple):
    """A kernel in one dtype and fixed shape, and the n at which it is tuned."""

    kernel: str
    dtype: str
    shape: dict[str, int]
    sizes: tuple[int, ...]


@functools.cache
def spec_of(kernel: str) -> KernelSpec:
    """The spec of a kernel, found once; `read` is the read floor."""
    return spec(kernel, (FLOOR_FOLDER,) if kernel == "read" else ())


def _decode() -> dict[str, Cell]:
    def served(heads: int, kv_heads: int) -> Cell:
        shape = {"batch": 1, "heads": heads, "kv_heads": kv_heads, "head_dim": 128}
        return Cell("decode", "float16", shape, SIZES)

    paper = Cell("decode", "float32", HEADS["P"], SIZES)
    return {"paper": paper, "40:8": served(40, 8), "28:4": served(28, 4)}


def shape_of(kernel: str, name: str, causal: bool = False) -> dict[str, int]:
    """The fixed shape of a kernel of the chain: P or S of HEADS and ROWS, as far as the kernel has such entries."""
    whole = {**HEADS[name], **ROWS[name], "causal": int(causal)}
    return {entry: value for entry, value in whole.items() if entry in spec_of(kernel).parameters}


def named(kernel: str, dtype: str, name: str, causal: bool = False) -> str:
    """The label of a cell: forward-bf16-P, fused-f32-S-causal."""
    return "-".join([kernel, SHORT[dtype], name, *(["causal"] if causal else [])])


MAIN = {
    "forward": (("bfloat16", "P"), ("bfloat16", "S"), ("float32", "P"), ("float64", "P")),
    "backward": (("float64", "P"), ("bfloat16", "S")),
    "fused": (("float64", "P"), ("bfloat16", "S")),
}
"""The cells with bars, or that say most: tuned first and at every n."""

FURTHER = {
    "backward": (("float32", "P"),),
    "fused": (("float32", "P"),),
    **dict.fromkeys(LAYERS, (("bfloat16", "S"), ("float32", "P"))),
}
"""What says as much, at a few n."""

PLAIN = (("bfloat16", "P"), ("float64", "P"), ("float16", "S"), ("bfloat16", "S"), ("float32", "P"))
REST = (*PLAIN, ("float32", "S"), ("float16", "P"))
"""Cells that are not causal; those of REST alone are left to who asks for them, and most causal ones: a call of nine
minutes has no room."""


def _cell(kernel: str, of: tuple[str, str], sizes: tuple[int, ...], causal: bool = False) -> tuple[str, Cell]:
    all_sizes = (1, *sizes) if kernel in LAYERS else sizes
    return named(kernel, *of, causal), Cell(kernel, of[0], shape_of(kernel, of[1], causal), all_sizes)


def _chain() -> dict[str, Cell]:
    found = []
    for kernel in CHAIN:
        found += [_cell(kernel, of, DOUBLING) for of in MAIN.get(kernel, ())]
        found += [_cell(kernel, of, FEW) for of in FURTHER.get(kernel, ())]
    known = dict(found)
    for kernel in CHAIN:
        masked = {"block": [("bfloat16", "S")]}.get(kernel, [("bfloat16", "S"), ("float32", "P")])
        found += [_cell(kernel, of, FEW, True) for of in masked if "causal" in spec_of(kernel).parameters]
        found += [_cell(kernel, of, FEW) for of in PLAIN if named(kernel, *of) not in known]
    return dict(found)


def _late() -> dict[str, Cell]:
    plain = [_cell(kernel, of, FEW) for of in REST for kernel in CHAIN]
    return dict([*plain, *(_cell(kernel, of, FEW, True) for of in REST for kernel in (*ATTENTION, "block"))])


_EARLY = {**_decode(), **_chain()}
CELLS: dict[str, Cell] = {**_EARLY, **{label: cell for label, cell in _late().items() if label not in _EARLY}}
"""Label -> cell; a row's key has the label as `shape`."""

FIRST = {
    kernel: tuple(named(kernel, *of) for of in (*MAIN.get(kernel, ()), *FURTHER.get(kernel, ()))) for kernel in CHAIN
}
"""The labels of MAIN and FURTHER."""


def labels(kernels: Iterable[str]) -> tuple[str, ...]:
    """The cells of some kernels that are measured unless others are named, in that order."""
    wanted = set(kernels)
    return tuple(label for label, cell in _EARLY.items() if cell.kernel in wanted)


def is_first(label: str) -> bool:
    """Whether a cell has bars, or says most."""
    return label in FIRST.get(CELLS[label].kernel, ()) or CELLS[label].kernel == "decode"


def problem_of(label: str, n: int, regime: str = REGIME) -> Problem:
    """The problem of one row."""
    cell = CELLS[label]
    return spec_of(cell.kernel).problem(n, cell.dtype, regime, **cell.shape)


def exists(label: str) -> bool:
    """Whether the kernel of a cell has its dtype, and a variant for devices that takes it."""
    cell = CELLS[label]
    known = known_of(cell.kernel)
    return cell.dtype in spec_of(cell.kernel).dtypes and any(cell.dtype in one.dtypes for one in known)


@functools.cache
def known_of(kernel: str) -> tuple[Variant, ...]:
    """The variants of a kernel for devices; `read` is the read floor."""
    return variants(kernel, (FLOOR_FOLDER,) if kernel == "read" else (), GPU_LANGUAGES)


@functools.cache
def sources(kernels: tuple[str, ...]) -> dict[str, str]:
    """What rows of some kernels depend on: hash of every variant, version of every tool."""
    known = [one for kernel in kernels for one in known_of(kernel)]
    names = [one.name for one in known]
    hashes = {one.name if names.count(one.name) == 1 else f"{one.kernel}/{one.name}": one.source_hash for one in known}
    return {**hashes, **{tool.name: tool.version for tool in gpu_tools()}}
