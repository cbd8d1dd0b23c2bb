"""Operands of the layers (RMSNorm, gated MLP, block) on a device, piece by piece.

Their references are those of spec.py: numpy's functions, called with a device's arrays, run there.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from advisor.kernels.gated import GatedSpec
from advisor.kernels.gpu.arrays import drawn, narrow, widen
from advisor.kernels.rms import RmsSpec
from advisor.kernels.spec import COMPUTED_IN
from advisor.kernels.transformer import TransformerSpec
from advisor.records import Problem

Layer: TypeAlias = RmsSpec | GatedSpec | TransformerSpec

ROWS_AT_ONCE = 2048
"""Rows that exist in float64 at a time: at n = 8192 their scores have 128 MiB."""


def inputs(xp: Any, spec: Layer, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """What `spec.inputs` makes on the host, of other random numbers, in storage."""
    shapes = spec.shapes(problem)
    wanted = {name: shapes[name] for name in spec.buffers if name not in spec.written}
    found = drawn(xp, wanted, COMPUTED_IN[problem.dtype], seed, "normal")
    return {name: narrow(array, problem.dtype) for name, array in spec.scaled(found, draw).items()}


def wide(problem: Problem, arrays: dict[str, Any]) -> dict[str, Any]:
    """The numbers that operands hold, in the dtype of the arithmetic. Exact."""
    return {name: widen(array, problem.dtype) for name, array in arrays.items()}


def pieces(xp: Any, rows: int) -> list[Any]:
    """All rows, ROWS_AT_ONCE at a time."""
    return [xp.arange(first, min(first + ROWS_AT_ONCE, rows)) for first in range(0, rows, ROWS_AT_ONCE)]
