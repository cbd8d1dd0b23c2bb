"""Inputs and reference of backward made on a device: the DNF of spec.py for arrays of CuPy, or of numpy."""

from __future__ import annotations

from typing import Any

from advisor.kernels import gradients
from advisor.kernels.attention import DRAWN, dims_of
from advisor.kernels.backward.spec import SPEC
from advisor.kernels.gpu import attention
from advisor.kernels.gpu.arrays import drawn, narrow, widen
from advisor.kernels.spec import COMPUTED_IN, Expected
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """q, k, v, gout in their storage, fresh from the seed, and their out and lse; see BackwardSpec.inputs."""
    m, shapes, kind = dims_of(problem), SPEC.shapes(problem), COMPUTED_IN[problem.dtype]
    found = drawn(xp, {name: shapes[name] for name in DRAWN}, problem.dtype, seed, draw)
    found["gout"] = gradients.scaled(found["gout"], problem.dtype, draw)
    out, lse = attention.forward(xp, m, found, problem.dtype)
    return {**found, "out": narrow(out.astype(kind), problem.dtype), "lse": lse.astype(kind)}


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """gq, gk, gv of all rows in float64 on the device, with the tolerances of BackwardSpec.reference."""
    types = SPEC.types(problem)
    exact = {name: widen(array, types[name]) for name, array in arrays.items()}
    found = gradients.all_rows(dims_of(problem), exact, gradients.Known(exact["out"], exact["lse"]), xp)
    made = gradients.expected(problem, exact, found)
    return {name: made[name] for name in SPEC.written}
