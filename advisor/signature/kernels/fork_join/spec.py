"""The DNF of fork and join: a copy so small that its time is that of entering and leaving a parallel region."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.spec import Array, Elements, Expected, KernelSpec, Parameter
from advisor.records import Problem


class ForkJoinSpec(KernelSpec):
    """y = x, n numbers."""

    name: ClassVar[str] = "fork_join"
    axes: ClassVar[dict[str, str]] = {"n": "number"}
    parameters: ClassVar[dict[str, Parameter]] = {}
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    buffers: ClassVar[tuple[str, ...]] = ("x", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    dims: ClassVar[tuple[str, ...]] = ("n",)

    def flops(self, problem: Problem) -> int:
        """None."""
        return 0

    def elements(self, problem: Problem) -> Elements:
        """n read, n written."""
        return Elements(problem.n, problem.n)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """x, y [n]."""
        return {"x": (problem.n,), "y": (problem.n,)}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """x [n], standard normal."""
        return {"x": np.random.default_rng(seed).standard_normal(problem.n, dtype=np.float32)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """x itself, exactly."""
        return {"y": Expected(inputs["x"].astype(np.float64), 0.0)}

    def edges(self) -> tuple[Problem, ...]:
        """Fewer numbers than threads, and a count that no team divides."""
        return tuple(self.problem(n) for n in (1, 3, 127))


SPEC = ForkJoinSpec()
