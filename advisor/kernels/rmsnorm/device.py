"""Inputs and reference of RMSNorm made on a device: the DNF of spec.py for arrays of CuPy, or of numpy."""

from __future__ import annotations

from typing import Any

from advisor.kernels.gpu import layers
from advisor.kernels.gpu.arrays import double
from advisor.kernels.rms import dims_of
from advisor.kernels.rmsnorm.spec import SPEC, normalised, tolerances
from advisor.kernels.spec import Expected
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """x [b,n,d] and g [d] in their storage, fresh from the seed; see KernelSpec.inputs."""
    return layers.inputs(xp, SPEC, problem, seed, draw)


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """All of y in float64 on the device, with the tolerances of KernelSpec.reference."""
    m, g = dims_of(problem), double(arrays["g"], problem.dtype)
    y = normalised(double(arrays["x"].reshape(m.rows, m.d_model), problem.dtype), g)
    real, cache = tolerances(problem, float(abs(g).max()))
    return {"y": Expected(y.reshape(arrays["x"].shape), real, cache_tolerance=cache)}
