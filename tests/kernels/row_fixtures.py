"""What the tests of the kernels on rows (RMSNorm, gated MLP) share: their shapes, every variant on them."""

from __future__ import annotations

import itertools

import numpy as np
from attention_fixtures import Case, check, compile_ahead, default_knobs, variant

from advisor.kernels.registry import spec
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import Array

RUNS = (("normal", 1), ("outlier", 2), ("normal", 3), ("outlier", 5))
"""What a size of problem is checked with in turn: a draw and a team."""


def check_shapes(
    kernel: str, name: str, dtype: str, shapes: tuple[dict[str, int], ...], sizes: tuple[int, ...] = (1, 2, 17, 65)
) -> int:
    """Default knobs on all shapes and sizes, two draws and teams each in turn.

    Returns:
        How many runs that were.
    """
    one, cases = variant(kernel, name), []
    for shape, n in itertools.product(shapes, sizes):
        problem = spec(kernel).problem(n, dtype, **shape)
        knobs = default_knobs(one, problem)
        if knobs is not None:
            runs = [RUNS[(len(cases) + step) % len(RUNS)] for step in (0, 1)]
            cases += [(Case(kernel, one, problem, knobs, threads), draw) for draw, threads in runs]
    compile_ahead(case for case, _ in cases)
    for case, draw in cases:
        check(case, draw)
    return len(cases)


def short(array: Array, dtype: str) -> Array:
    """Numbers rounded to sixteen bits and widened again."""
    return widen(narrow(array.astype(np.float32), dtype), dtype)


def wide(inputs: dict[str, Array]) -> dict[str, Array]:
    """The inputs in float64."""
    return {name: array.astype(np.float64) for name, array in inputs.items()}
