"""Inputs and reference of decode made on a device: the DNF of spec.py for arrays of CuPy, or of numpy.

A host needs a minute for a cache of a million rows and forty heads, a GPU some milliseconds. The module of arrays is
handed in; with numpy it gives what spec.py gives, which a test holds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from advisor.kernels.attention import cache_tolerance, out_tolerance, rounding
from advisor.kernels.decode.spec import COMPUTED_IN, SPEC
from advisor.kernels.normal import OUTLIERS
from advisor.kernels.spec import STORAGE, UNIT_ROUNDOFF, Expected
from advisor.records import Problem

PIECE = 1 << 26
"""Elements that are drawn at a time: half a gigabyte in float64."""

ROWS = 1 << 18
"""Cache rows that are held in float64 at a time."""


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """q [b,h,d], k and v [b,g,n,d] in their storage, fresh from the seed; see KernelSpec.inputs."""
    shapes = SPEC.shapes(problem)
    kind = np.dtype(COMPUTED_IN[problem.dtype])
    random = xp.random.default_rng(seed)
    found = {}
    for name in ("q", "k", "v"):
        out = xp.empty(math.prod(shapes[name]), STORAGE[problem.dtype])
        for start in range(0, out.size, PIECE):
            count = min(PIECE, out.size - start)
            odd = draw == "outlier" and name in OUTLIERS
            piece = _outliers(xp, name, start, count, kind) if odd else random.standard_normal(count, dtype=kind)
            out[start : start + count] = _narrow(xp, piece, problem.dtype)
        found[name] = out.reshape(shapes[name])
    found["q"] = _computed(found["q"], problem.dtype)
    return found


def _outliers(xp: Any, name: str, start: int, count: int, kind: Any) -> Any:
    """Elements start .. of what normal.outliers makes; its formula has the period of its modulus."""
    step, modulus, divisor, offset, factor = OUTLIERS[name]
    period = ((np.arange(modulus) * step % modulus / divisor - offset) * factor).astype(kind)
    return xp.asarray(period)[(xp.arange(count, dtype=np.int64) + start) % modulus]


def _narrow(xp: Any, piece: Any, dtype: str) -> Any:
    if dtype != "bfloat16":
        return piece.astype(STORAGE[dtype])
    bits = piece.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _computed(array: Any, dtype: str) -> Any:
    """The numbers that a storage array holds, in the type that is computed in. Exact."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(COMPUTED_IN[dtype])


def _double(array: Any, dtype: str) -> Any:
    """The same in float64."""
    return _computed(array, dtype).astype(np.float64)


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """out [b,h,d] in float64 on the host, with the tolerances of KernelSpec.reference."""
    b, h, g, d, n = (problem.dims()[name] for name in SPEC.dims)
    q = arrays["q"].reshape(b * g, h // g, d)
    k, v = (arrays[name].reshape(b * g, n, d) for name in ("k", "v"))
    heads = [_attend(xp, q[i].astype(np.float64), k[i], v[i], problem.dtype) for i in range(b * g)]
    most = {name: max(found[1][name] for found in heads) for name in ("k", "v")}
    longest = float(xp.sqrt((q.astype(np.float64) ** 2).sum(-1)).max())
    sizes = {"q": np.array([[longest]]), "k": np.array([[most["k"]]])}
    u = UNIT_ROUNDOFF[COMPUTED_IN[problem.dtype]]
    tolerance = out_tolerance(rounding(problem, sizes, u), np.array([most["v"]]))
    loose = cache_tolerance(tolerance, problem, most["v"])
    values = np.stack([found[0] for found in heads]).reshape(b, h, d)
    return {"out": Expected(values, tolerance, cache_tolerance=loose)}


def _attend(xp: Any, q: Any, k: Any, v: Any, dtype: str) -> tuple[Any, dict[str, float]]:
    """Attention of one group as numpy's array, and the largest |k| of a row and |v| of an element."""
    n, d = k.shape
    scores, largest = xp.empty((len(q), n)), {"k": 0.0, "v": 0.0}
    for start in range(0, n, ROWS):
        rows = _double(k[start : start + ROWS], dtype)
        scores[:, start : start + ROWS] = q @ rows.T
        largest["k"] = max(largest["k"], float(xp.sqrt((rows * rows).sum(-1)).max()))
    scores *= 1 / math.sqrt(d)
    weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
    out = xp.zeros((len(q), d))
    for start in range(0, n, ROWS):
        rows = _double(v[start : start + ROWS], dtype)
        out += weights[:, start : start + ROWS] @ rows
        largest["v"] = max(largest["v"], float(xp.abs(rows).max(axis=1).max()))
    out /= weights.sum(axis=1, keepdims=True)
    return np.asarray(out.get() if hasattr(out, "get") else out), largest
