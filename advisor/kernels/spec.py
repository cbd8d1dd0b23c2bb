"""KernelSpec: what a kernel computes (its DNF), apart from every realisation of it.

A kernel is a folder with a `spec.py` that defines `SPEC`, an instance of a KernelSpec subclass, and one source file a
variant. The frame calls, in this order: `problem` (once a request), `elements`, `flops`, `shapes` and `types` (before a
launch), `inputs` (in the bench worker, which owns the arrays), `reference` (in the bench worker, to judge).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from advisor.errors import BadInput
from advisor.records import Pairs, Problem, pairs

Array = np.ndarray[Any, Any]
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Unit roundoff of round to nearest. Source: IEEE 754; bfloat16 keeps 8 bits of significand."""


DRAWS = ("normal", "outlier")
"""What inputs may be drawn from: standard normal numbers, or the scale of outliers seen in real models."""

STORAGE = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
"""dtype -> the numpy type that holds it; numpy has no bfloat16, so its bits are held as integers."""

COMPUTED_IN = {"float64": "float64", "float32": "float32", "bfloat16": "float32", "float16": "float32"}
"""dtype of a problem, which is how its operands are stored -> dtype of the arithmetic."""


Numbers = TypeVar("Numbers", bound=NamedTuple)


def dims_in(kind: type[Numbers], problem: Problem) -> Numbers:
    """The numbers of a problem as a kernel's own record of them.

    Args:
        kind: a NamedTuple whose fields are names of `Problem.dims()`.
        problem: one problem of that kernel.
    """
    named = problem.dims()
    return kind(*(named[name] for name in kind._fields))


class Expected(NamedTuple):
    """What the DNF says of one output.

    Attributes:
        values: in float64, of the output's shape; where `rows` is given, [len(rows), last axis] instead.
        tolerance: the largest |output - values| / max(1, |values|) that rounding explains. Derived from dtype,
            reduction length and the size of the inputs; never tuned.
        rows: which rows of the output, seen as [rows, last axis], are known; None: all. The rest is only checked to be
            written and finite: a whole reference would take too long.
        columns: the same for places on the last axis: `values` is then [all rows, len(columns)]. A weight's gradient
            that lies transposed has its outputs there.
        cache_tolerance: the same for a variant whose header says `"arithmetic": "cache"`; None: the kernel has none.
    """

    values: Array
    tolerance: float
    rows: Array | None = None
    cache_tolerance: float | None = None
    columns: Array | None = None

    def allowed(self, arithmetic: str) -> float:
        """The tolerance for a variant of this arithmetic.

        Raises:
            BadInput: the kernel has no tolerance for it.
        """
        found = self.tolerance if arithmetic == "real" else self.cache_tolerance
        if found is None:
            rule = "a kernel's reference must say what rounding to its cache's dtype explains"
            raise BadInput(rule, got=f'"arithmetic": "{arithmetic}"', allowed='"real"')
        return found


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
        written: names of the outputs, the last of `buffers`.
        constant: inputs that a server keeps from call to call, such as weights: a variant may rearrange them once.
        draws: what inputs can be drawn from, of DRAWS; "normal" is always there.
        dims: names of the numbers handed to the C entry, in order; taken from `Problem.dims()`.
    """

    name: ClassVar[str]
    axes: ClassVar[dict[str, str]]
    parameters: ClassVar[dict[str, Parameter]]
    dtypes: ClassVar[tuple[str, ...]]
    buffers: ClassVar[tuple[str, ...]]
    written: ClassVar[tuple[str, ...]]
    constant: ClassVar[tuple[str, ...]] = ()
    draws: ClassVar[tuple[str, ...]] = ("normal",)
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

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """The shape of every buffer, in the order of `buffers`."""
        raise NotImplementedError

    def types(self, problem: Problem) -> dict[str, str]:
        """The dtype of every buffer: the problem's. Override where only some are stored in it (16-bit caches)."""
        return dict.fromkeys(self.buffers, problem.dtype)

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """Fresh random inputs, C-contiguous, each of the numpy type that holds its dtype (STORAGE).

        Args:
            problem: one problem.
            seed: the same seed gives the same inputs.
            draw: one of `draws`.
        """
        raise NotImplementedError

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """What each output must be, computed in float64, with the tolerance for these very inputs."""
        raise NotImplementedError

    def edges(self) -> tuple[Problem, ...]:
        """Problems that every variant must get right before it is timed: n = 1, odd, prime, one past a tile."""
        raise NotImplementedError

    def shape_label(self, shape: Pairs) -> str:
        """The fixed shape in a few words."""
        return " ".join(f"{key}={value}" for key, value in shape)
