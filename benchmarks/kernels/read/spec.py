"""The DNF of the read floor: the mean of all elements of a KV cache, k and v.

Every element is needed, so whatever computes it has read the cache once: no decode attention can be faster than the
fastest realisation of this at the same team, placement, process part and cache regime. It is checked like any kernel:
a floor that skipped a part would be caught.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from advisor.kernels.decode.spec import DEVIATIONS, DecodeSpec
from advisor.kernels.spec import UNIT_ROUNDOFF, Array, Elements
from advisor.records import Problem


class ReadSpec(DecodeSpec):
    """Shapes of decode attention, without the queries."""

    name: ClassVar[str] = "read"
    buffers: ClassVar[tuple[str, ...]] = ("k", "v", "out")

    def flops(self, problem: Problem) -> int:
        """One addition an element."""
        return self.elements(problem).read

    def elements(self, problem: Problem) -> Elements:
        """k and v [b,g,n,d] once each; one number written."""
        b, _, g, d, n = (problem.dims()[name] for name in self.dims)
        return Elements(2 * b * g * n * d, 1)

    def inputs(self, problem: Problem, seed: int) -> dict[str, Array]:
        """k and v [b,g,n,d], uniform in [0, 1): their mean is far from 0, so that a share left out shows."""
        b, _, g, d, n = (problem.dims()[name] for name in self.dims)
        generator = np.random.Generator(np.random.SFC64(seed))
        return {name: generator.random((b, g, n, d), dtype=np.float32) for name in ("k", "v")}

    def outputs(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """out [1]."""
        return {"out": (1,)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Array]:
        """The mean in float64."""
        sums: list[Any] = [array.sum(dtype=np.float64) for array in inputs.values()]
        return {"out": np.array([sum(sums) / sum(array.size for array in inputs.values())])}

    def tolerance(self, problem: Problem) -> float:
        """Rounding of one sum of all elements; DecodeSpec.tolerance has the formula and its sources."""
        return DEVIATIONS * math.sqrt(self.elements(problem).read) * UNIT_ROUNDOFF[problem.dtype]


SPEC = ReadSpec()
