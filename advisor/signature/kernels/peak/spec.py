"""The DNF of the peak flop rate: x -> factor x + (1 - factor), many times over, in registers.

Nothing but multiply-adds that wait for none of their neighbours: no kernel can do more arithmetic in the time.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.spec import UNIT_ROUNDOFF, Array, Elements, Expected, KernelSpec, Parameter
from advisor.records import Problem

WIDTH = 384
"""Numbers of a row: whole groups of 12 vectors of 32 or 64 bytes in both dtypes."""

FACTOR = 1.0 - 2.0**-10
"""Exact in both dtypes; after 4096 steps 1.8 % of x is left, so that a step left out would show."""


class PeakSpec(KernelSpec):
    """y = the value of x after `steps` steps, n rows of WIDTH numbers."""

    name: ClassVar[str] = "peak"
    axes: ClassVar[dict[str, str]] = {"n": "row", "w": "number of a row"}
    parameters: ClassVar[dict[str, Parameter]] = {"steps": Parameter("multiply-adds of each number", 4096)}
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    buffers: ClassVar[tuple[str, ...]] = ("x", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    dims: ClassVar[tuple[str, ...]] = ("steps", "n")

    def flops(self, problem: Problem) -> int:
        """A multiplication and an addition a step."""
        return 2 * problem.n * WIDTH * int(problem.dims()["steps"])

    def elements(self, problem: Problem) -> Elements:
        """Each number once."""
        return Elements(problem.n * WIDTH, problem.n * WIDTH)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """x, y [n][w]."""
        return {"x": (problem.n, WIDTH), "y": (problem.n, WIDTH)}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """x [n][w], standard normal."""
        kind = np.float64 if problem.dtype == "float64" else np.float32
        return {"x": np.random.default_rng(seed).standard_normal((problem.n, WIDTH), dtype=kind)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """The closed form 1 + (x - 1) factor^steps.

        Each step rounds twice and all that came before shrinks by the factor, so errors add up to no more than
        2 u max|x| / (1 - factor).
        """
        x = inputs["x"].astype(np.float64)
        largest = max(1.0, float(np.abs(x).max()))
        tolerance = 2 * UNIT_ROUNDOFF[problem.dtype] * largest / (1 - FACTOR)
        return {"y": Expected(1 + (x - 1) * FACTOR ** int(problem.dims()["steps"]), tolerance)}

    def edges(self) -> tuple[Problem, ...]:
        """One row, and rows that no team divides."""
        return tuple(self.problem(n, dtype, steps=steps) for n, steps in ((1, 1), (7, 64)) for dtype in self.dtypes)


SPEC = PeakSpec()
