"""A kernel for tests: y[i][j] = 3 x[i][j] + 1. It also shows that a kernel is a folder."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.spec import UNIT_ROUNDOFF, Array, Elements, Expected, KernelSpec, Parameter
from advisor.records import Problem


class Scale(KernelSpec):
    """n rows of `width` numbers."""

    name = "scale"
    axes: ClassVar = {"i": "row, 0 .. n-1", "j": "column, 0 .. width-1"}
    parameters: ClassVar = {"width": Parameter("numbers in a row", 16)}
    dtypes = ("float32", "float64")
    buffers = ("x", "y")
    written = ("y",)
    dims = ("width", "n")

    def flops(self, problem: Problem) -> int:
        return 2 * problem.n * problem.dims()["width"]

    def elements(self, problem: Problem) -> Elements:
        count = problem.n * problem.dims()["width"]
        return Elements(count, count)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.buffers, (problem.n, problem.dims()["width"]))

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        shape = (problem.n, problem.dims()["width"])
        return {"x": np.random.default_rng([seed, problem.n]).standard_normal(shape).astype(problem.dtype)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        rounding = 8 * UNIT_ROUNDOFF[problem.dtype]  # two roundings of a number that may be cancelled to order one
        return {"y": Expected(3 * inputs["x"].astype(np.float64) + 1, rounding)}

    def edges(self) -> tuple[Problem, ...]:
        return tuple(self.problem(n, dtype) for dtype in self.dtypes for n in (1, 2, 3, 7, 17, 65))


SPEC = Scale()
