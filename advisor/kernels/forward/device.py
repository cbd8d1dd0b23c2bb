"""Inputs and reference of forward made on a device: the DNF of spec.py for arrays of CuPy, or of numpy."""

from __future__ import annotations

from typing import Any

from advisor.kernels.attention import DRAWN, dims_of, out_tolerances
from advisor.kernels.forward.spec import SPEC
from advisor.kernels.gpu import arrays as operands
from advisor.kernels.gpu import attention
from advisor.kernels.spec import Expected
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """q [b,h,n,d], k and v [b,g,n,d] in their storage, fresh from the seed; see AttentionSpec.inputs."""
    shapes = {name: shape for name, shape in SPEC.shapes(problem).items() if name in DRAWN}
    return operands.drawn(xp, shapes, problem.dtype, seed, draw)


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """out [b,h,n,d] of all rows in float64 on the device, with the tolerances of ForwardSpec.reference."""
    out, _ = attention.forward(xp, dims_of(problem), arrays, problem.dtype)
    tolerance, loose = out_tolerances(problem, attention.sizes(xp, arrays, problem.dtype))
    return {"out": Expected(out, tolerance, cache_tolerance=loose)}
