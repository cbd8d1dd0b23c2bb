"""Inputs and reference of RMSNorm with projection made on a device: the DNF of spec.py for arrays of CuPy, or numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.kernels.gpu import layers
from advisor.kernels.norm_linear.spec import SPEC, dims_of, of_rows
from advisor.kernels.rms import expected, rounded
from advisor.kernels.spec import Expected
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """x [b,n,d], g [d] and w [o,d] in their storage, fresh from the seed; see KernelSpec.inputs."""
    return layers.inputs(xp, SPEC, problem, seed, draw)


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """All of y in float64 on the device, with the tolerances of KernelSpec.reference."""
    m, of, how = dims_of(problem), layers.wide(problem, arrays), rounded(problem)
    x, g, w = (of[name].astype(np.float64) for name in ("x", "g", "w"))
    rows = x.reshape(m.rows, m.d_model)
    found = [of_rows(rows[some], g, w, how) for some in layers.pieces(xp, m.rows)]
    y = np.concatenate([part.y for part in found])
    return {"y": expected(problem, y.reshape(m.batch, m.n, m.d_out), found)}
