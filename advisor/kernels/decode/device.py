"""Inputs and reference of decode made on a device: the DNF of spec.py for arrays of CuPy, or of numpy.

A host needs a minute for a cache of a million rows and forty heads, a GPU some milliseconds. The module of arrays is
handed in; with numpy it gives what spec.py gives, which a test holds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from advisor.kernels.attention import cache_tolerance, out_tolerance, rounding
from advisor.kernels.decode.spec import SPEC
from advisor.kernels.gpu.arrays import double, drawn, host, widen
from advisor.kernels.spec import Expected
from advisor.records import Problem

ROWS = 1 << 18
"""Cache rows that are held in float64 at a time."""


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """q [b,h,d], k and v [b,g,n,d] in their storage, fresh from the seed; see KernelSpec.inputs."""
    shapes = {name: shape for name, shape in SPEC.shapes(problem).items() if name not in SPEC.written}
    found = drawn(xp, shapes, problem.dtype, seed, draw)
    return {**found, "q": widen(found["q"], problem.dtype)}


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """out [b,h,d] in float64 on the host, with the tolerances of KernelSpec.reference."""
    b, h, g, d, n = (problem.dims()[name] for name in SPEC.dims)
    q = arrays["q"].reshape(b * g, h // g, d)
    k, v = (arrays[name].reshape(b * g, n, d) for name in ("k", "v"))
    heads = [_attend(xp, q[i].astype(np.float64), k[i], v[i], problem.dtype) for i in range(b * g)]
    most = {name: max(found[1][name] for found in heads) for name in ("k", "v")}
    longest = float(xp.sqrt((q.astype(np.float64) ** 2).sum(-1)).max())
    sizes = {"q": np.array([[longest]]), "k": np.array([[most["k"]]])}
    tolerance = out_tolerance(rounding(problem, sizes), np.array([most["v"]]))
    loose = cache_tolerance(tolerance, problem, most["v"])
    values = np.stack([found[0] for found in heads]).reshape(b, h, d)
    return {"out": Expected(values, tolerance, cache_tolerance=loose)}


def _attend(xp: Any, q: Any, k: Any, v: Any, dtype: str) -> tuple[Any, dict[str, float]]:
    """Attention of one group as numpy's array, and the largest |k| of a row and |v| of an element."""
    n, d = k.shape
    scores, largest = xp.empty((len(q), n)), {"k": 0.0, "v": 0.0}
    for start in range(0, n, ROWS):
        rows = double(k[start : start + ROWS], dtype)
        scores[:, start : start + ROWS] = q @ rows.T
        largest["k"] = max(largest["k"], float(xp.sqrt((rows * rows).sum(-1)).max()))
    scores *= 1 / math.sqrt(d)
    weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
    out = xp.zeros((len(q), d))
    for start in range(0, n, ROWS):
        rows = double(v[start : start + ROWS], dtype)
        out += weights[:, start : start + ROWS] @ rows
        largest["v"] = max(largest["v"], float(xp.abs(rows).max(axis=1).max()))
    out /= weights.sum(axis=1, keepdims=True)
    return host(out), largest
