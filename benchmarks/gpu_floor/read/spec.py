"""The DNF of a GPU's read floor: the sum of all 32-bit words of a KV cache, k and v, modulo 2**24, over 2**24.

Every word is needed and the result is exact in whatever order they are added, so what computes it has read the cache
once, and a floor that left a word out is caught. Operands are those of decode: the same bytes, the same numbers.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.decode.spec import DecodeSpec
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem

WORD = 1 << 24
"""What float32 holds exactly: the output is a multiple of its inverse below 1."""


class ReadSpec(DecodeSpec):
    """Shapes of decode attention, without the queries."""

    name: ClassVar[str] = "read"
    buffers: ClassVar[tuple[str, ...]] = ("k", "v", "out")
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")
    draws: ClassVar[tuple[str, ...]] = ("normal",)

    def flops(self, problem: Problem) -> int:
        """One addition an element."""
        return self.elements(problem).read

    def elements(self, problem: Problem) -> Elements:
        """k and v [b,g,n,d] once each; one number written."""
        b, _, g, d, n = (problem.dims()[name] for name in self.dims)
        return Elements(2 * b * g * n * d, 1)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """k, v [b,g,n,d]; out [1]."""
        known = super().shapes(problem)
        return {"k": known["k"], "v": known["v"], "out": (1,)}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """k and v of decode's own inputs."""
        found = DecodeSpec().inputs(problem._replace(kernel="decode"), seed, draw)
        return {name: found[name] for name in ("k", "v")}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """The sum, exact: no rounding is allowed for."""
        return expected(sum(int(words.view(np.uint32).sum(dtype=np.uint64)) for words in inputs.values()))


def expected(total: int) -> dict[str, Expected]:
    """What a sum of words makes of the output."""
    return {"out": Expected(np.array([total % WORD / WORD]), 0.0)}


SPEC = ReadSpec()
