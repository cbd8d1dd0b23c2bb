"""The DNF of the read floor: the mean of all elements of a KV cache, k and v.

Every element is needed, so whatever computes it has read the cache once: no decode attention can be faster than the
fastest realisation of this at the same team, placement, process part and cache regime. It is checked like any kernel:
a floor that skipped a part would be caught.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from advisor.kernels.attention import spread
from advisor.kernels.decode.spec import DecodeSpec
from advisor.kernels.spec import UNIT_ROUNDOFF, Array, Elements, Expected
from advisor.records import Problem


class ReadSpec(DecodeSpec):
    """Shapes of decode attention, without the queries."""

    name: ClassVar[str] = "read"
    buffers: ClassVar[tuple[str, ...]] = ("k", "v", "out")
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    draws: ClassVar[tuple[str, ...]] = ("normal",)

    def flops(self, problem: Problem) -> int:
        """One addition an element."""
        return self.elements(problem).read

    def elements(self, problem: Problem) -> Elements:
        """k and v [b,g,n,d] once each; one number written."""
        b, _, g, d, n = (problem.dims()[name] for name in self.dims)
        return Elements(2 * b * g * n * d, 1)

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """k and v [b,g,n,d], uniform in [0, 1): their mean is far from 0, so that a share left out shows."""
        b, _, g, d, n = (problem.dims()[name] for name in self.dims)
        generator = np.random.Generator(np.random.SFC64(seed))
        return {name: generator.random((b, g, n, d), dtype=np.float32) for name in ("k", "v")}

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """k, v [b,g,n,d]; out [1]."""
        known = super().shapes(problem)
        return {"k": known["k"], "v": known["v"], "out": (1,)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """The mean in float64; the tolerance is the rounding of one sum of all elements (attention.spread)."""
        sums: list[Any] = [array.sum(dtype=np.float64) for array in inputs.values()]
        mean = np.array([sum(sums) / sum(array.size for array in inputs.values())])
        return {"out": Expected(mean, spread(self.elements(problem).read, UNIT_ROUNDOFF[problem.dtype]))}


SPEC = ReadSpec()
