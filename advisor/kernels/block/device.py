"""Inputs and reference of a transformer block made on a device: the DNF of spec.py for arrays of CuPy, or of numpy."""

from __future__ import annotations

from typing import Any

from advisor.kernels.block.spec import SPEC, judged, keys_and_values, known_of, of_rows, split
from advisor.kernels.gpu import layers
from advisor.kernels.rms import Kept
from advisor.kernels.spec import Expected
from advisor.kernels.tracked import Tracked, joined
from advisor.kernels.transformer import dims_of
from advisor.records import Problem


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """x [b,n,d] and all weights in their storage, fresh from the seed; see KernelSpec.inputs."""
    return layers.inputs(xp, SPEC, problem, seed, draw)


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """All of y in float64 on the device, with the tolerances of KernelSpec.reference."""
    m, of = dims_of(problem), layers.wide(problem, arrays)

    def found(way: Kept) -> Tracked:
        known = known_of(problem, of, way)
        caches = split(m, joined([keys_and_values(known, rows) for rows in layers.pieces(xp, m.rows)]))
        return joined([of_rows(known, b, rows, caches[b]) for b in range(m.batch) for rows in layers.pieces(xp, m.n)])

    y, real, cache = judged(problem, found)
    return {"y": Expected(y.reshape(arrays["x"].shape), real, cache_tolerance=cache)}
