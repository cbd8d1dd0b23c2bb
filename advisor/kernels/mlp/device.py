"""Inputs and reference of the gated MLP made on a device: the DNF of spec.py for arrays of CuPy, or of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.kernels.gated import WEIGHTS, dims_of
from advisor.kernels.gpu import layers
from advisor.kernels.mlp.spec import SPEC, of_rows
from advisor.kernels.rms import expected, rounded
from advisor.kernels.spec import Expected
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """x [b,n,d], wg, wu [f,d], wd [d,f] in their storage, fresh from the seed; see KernelSpec.inputs."""
    return layers.inputs(xp, SPEC, problem, seed, draw)


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """All of y in float64 on the device, with the tolerances of KernelSpec.reference."""
    m, of, how = dims_of(problem), layers.wide(problem, arrays), rounded(problem)
    x, weights = of["x"].reshape(m.rows, m.d_model), [of[name] for name in WEIGHTS]
    found = [of_rows(x[some].astype(np.float64), weights, how) for some in layers.pieces(xp, m.rows)]
    y = np.concatenate([part.y for part in found])
    return {"y": expected(problem, y.reshape(arrays["x"].shape), found)}
