"""KernelSpec: what a kernel computes (its DNF), apart from every realisation of it.

A kernel is a folder with a `spec.py` that defines `SPEC`, an instance of a KernelSpec subclass, and one source file a
variant. The frame calls, in this order: `problem` (once a request), `elements` and `flops` (before a launch), `inputs`
and `outputs` (in the bench worker, which owns the arrays), `reference` and `tolerance` (in the bench worker, to judge).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from advisor.errors import BadInput
from advisor.records import Pairs, Problem, pairs

Array = np.ndarray[Any, Any]
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Unit roundoff of round to nearest. Source: IEEE 754; bfloat16 keeps 8 bits of significand."""


class Elements(NamedTuple):
    """Predicted traffic of a DNF in elements (not bytes): each input read once, each output written once."""

    read: int
    written: int


class Parameter(NamedTuple):
    """One entry of the fixed shape: what it means, its default, the least allowed value."""

    meaning: str
    default: int
    least: int = 1


class KernelSpec:
    """Base class. Subclasses set the class attributes and write the methods that raise NotImplementedError.

    Attributes:
        name: the kernel's name and its folder's.
        axes: axis letter -> meaning, used in all files of the folder.
        parameters: the fixed shape, name -> Parameter. A boolean is the integer 0 or 1.
        dtypes: the dtypes that have a reference.
        buffers: names of inputs then outputs, in the order of the C entry's pointers.
        dims: names of the numbers handed to the C entry, in order; taken from `Problem.dims()`.
    """

    name: ClassVar[str]
    axes: ClassVar[dict[str, str]]
    parameters: ClassVar[dict[str, Parameter]]
    dtypes: ClassVar[tuple[str, ...]]
    buffers: ClassVar[tuple[str, ...]]
    dims: ClassVar[tuple[str, ...]]

    def problem(self, n: int, dtype: str = "float32", regime: str = "warm", **shape: int) -> Problem:
        """A checked problem; shape entries left out take their defaults.

        Raises:
            BadInput: unknown shape entry, value under its least, unknown dtype, n < 1, or a broken relation.
        """
        for key in shape:
            if key not in self.parameters:
                raise BadInput(f"{self.name} has no such shape entry", got=key, allowed=", ".join(self.parameters))
        if dtype not in self.dtypes:
            raise BadInput(f"{self.name} is not defined for this dtype", got=dtype, allowed=", ".join(self.dtypes))
        full = {key: shape.get(key, p.default) for key, p in self.parameters.items()}
        for key, value in {**full, "n": n}.items():
            least = 1 if key == "n" else self.parameters[key].least
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadInput(f"{key} must be a whole number of at least {least}", got=value)
        self.check(full)
        return Problem(self.name, dtype, pairs(full), n, regime)

    def check(self, shape: dict[str, int]) -> None:
        """Relations between shape entries; the base has none. Raises BadInput."""

    def flops(self, problem: Problem) -> int:
        """Floating-point operations of the DNF."""
        raise NotImplementedError

    def elements(self, problem: Problem) -> Elements:
        """Predicted elements read and written by the DNF."""
        raise NotImplementedError

    def inputs(self, problem: Problem, seed: int) -> dict[str, Array]:
        """Fresh random inputs, C-contiguous, of the problem's dtype."""
        raise NotImplementedError

    def outputs(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs."""
        raise NotImplementedError

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs in float64."""
        raise NotImplementedError

    def tolerance(self, problem: Problem) -> float:
        """The largest error that rounding explains, for outputs of order one. Derived, never tuned."""
        raise NotImplementedError

    def edges(self) -> tuple[Problem, ...]:
        """Problems that every variant must get right before it is timed: n = 1, odd, prime, one past a tile."""
        raise NotImplementedError

    def shape_label(self, shape: Pairs) -> str:
        """The fixed shape in a few words."""
        return " ".join(f"{key}={value}" for key, value in shape)
