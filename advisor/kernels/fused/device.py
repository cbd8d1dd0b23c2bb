"""Inputs and reference of fused made on a device: the DNF of spec.py for arrays of CuPy, or of numpy."""

from __future__ import annotations

from typing import Any

from advisor.kernels import gradients
from advisor.kernels.attention import DRAWN, dims_of
from advisor.kernels.fused.spec import SPEC
from advisor.kernels.gpu import attention
from advisor.kernels.gpu.arrays import drawn, widen
from advisor.kernels.spec import Expected
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """q, gout [b,h,n,d], k and v [b,g,n,d] in their storage, fresh from the seed; see FusedSpec.inputs."""
    shapes = SPEC.shapes(problem)
    found = drawn(xp, {name: shapes[name] for name in DRAWN}, problem.dtype, seed, draw)
    return {**found, "gout": gradients.scaled(found["gout"], problem.dtype, draw)}


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """out, gq, gk, gv of all rows in float64 on the device, with the tolerances of FusedSpec.reference."""
    m, types = dims_of(problem), SPEC.types(problem)
    exact = {name: widen(array, types[name]) for name, array in arrays.items()}
    known = gradients.Known(*attention.forward(xp, m, arrays, problem.dtype))
    return gradients.expected(problem, exact, gradients.all_rows(m, exact, known, xp))
