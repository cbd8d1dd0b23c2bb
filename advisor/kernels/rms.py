"""What RMSNorm forward and backward share: axes, the fixed shape, inputs, edge problems, and the rounding of r.

    r[b,i] = 1 / sqrt(mean over d of x[b,i,d]**2 + EPS)         y[b,i,d] = x[b,i,d] r[b,i] g[d]

With a cotangent gy of y, the gradients are

    c[b,i] = sum over d of gy[b,i,d] g[d] x[b,i,d]
    gx[b,i,d] = r[b,i] gy[b,i,d] g[d] - x[b,i,d] r[b,i]**3 c[b,i] / d_model
    gg[d] = sum over b and i of gy[b,i,d] x[b,i,d] r[b,i]

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019, equation 4, with the small constant
that every implementation adds below the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels.attention import DEVIATIONS, HALF_LEAST, spread, stored
from advisor.kernels.normal import drawn
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import COMPUTED_IN, DRAWS, UNIT_ROUNDOFF, Array, Expected, KernelSpec, Parameter, dims_in
from advisor.records import Problem

EPS = 1e-5
"""Added to the mean of squares. Source: `rms_norm_eps` of Llama 2 and 3. rms.h and the Fortran sources have it too."""

MAGNITUDES = (1.0, 1e-3, 30.0)
"""Draw outlier: rows take these factors in turn; beside 1e-3**2 EPS is not small, so that one left out shows."""

MASSIVE = (37, 80.0)
"""Draw outlier: every 37th element of a row is 80 times as large, as in the residual stream of real models.

Source: Sun, Chen, Kolter and Liu, "Massive Activations in Large Language Models", COLM 2024: a few channels, far apart,
carry values far above the others'; 80 is milder than theirs."""

SHAPE_EDGES = ((2, 64), (1, 896), (3, 80), (1, 7), (2, 1), (1, 4099))
"""(batch, d_model): the paper's, served ones, one that no vector divides, one element a row, a wide odd one."""

SIZE_EDGES = (1, 2, 17, 64, 65)
"""One row, two, a prime, a power of two, one past it."""


class Dims(NamedTuple):
    """The numbers of a problem: sequences, elements of a row, rows of a sequence."""

    batch: int
    d_model: int
    n: int

    @property
    def rows(self) -> int:
        """Rows of all sequences."""
        return self.batch * self.n


def dims_of(problem: Problem) -> Dims:
    """The dims of a problem of one of these kernels."""
    return dims_in(Dims, problem)


class RmsSpec(KernelSpec):
    """What rmsnorm and rmsnorm_backward have in common. Subclasses add buffers, costs and the reference."""

    axes: ClassVar[dict[str, str]] = {
        "b": "sequence of the batch",
        "i": "row of a sequence (a token), 0 .. n-1",
        "d": "element of a row, 0 .. d_model-1",
    }
    parameters: ClassVar[dict[str, Parameter]] = {
        "batch": Parameter("sequences", 2),
        "d_model": Parameter("elements of one row", 64),
    }
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    draws: ClassVar[tuple[str, ...]] = DRAWS
    dims: ClassVar[tuple[str, ...]] = Dims._fields

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """g and gg [d]; all others [b,n,d]."""
        m = dims_of(problem)
        return {name: (m.d_model,) if name in ("g", "gg") else (m.batch, m.n, m.d_model) for name in self.buffers}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """Standard normal numbers, rounded to nearest in the problem's dtype; in draw outlier, x has rows of several
        magnitudes and a few massive elements.
        """
        shapes = self.shapes(problem)
        wanted = {name: shapes[name] for name in self.buffers if name not in self.written}
        found = drawn(wanted, seed, "normal", np.dtype(COMPUTED_IN[problem.dtype]))
        return narrowed(self.scaled(found, draw), problem.dtype)

    def scaled(self, found: dict[str, Array], draw: str) -> dict[str, Array]:
        """Drawn numbers at their scale, in place; also a device's."""
        if draw == "outlier":
            massive(found["x"], MAGNITUDES)
        return found

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes in all dtypes."""
        return tuple(
            self.problem(n, dtype, batch=b, d_model=d)
            for dtype in self.dtypes
            for b, d in SHAPE_EDGES
            for n in SIZE_EDGES
        )

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 2, d_model 64`."""
        of = dict(shape)
        return f"batch {of['batch']}, d_model {of['d_model']}"


def scales(x: Array) -> Array:
    """r of every row: x [rows,d] in float64 -> [rows]."""
    found: Array = 1 / np.sqrt(np.square(x).mean(axis=-1) + EPS)
    return found


def scale_error(d_model: int, u: float) -> float:
    """Relative error of r in arithmetic of unit roundoff u.

    The mean is a sum of d squares, all positive, so its relative error is e(d + 2), division and addition of EPS
    included; the root halves it; root, quotient and the stored EPS add 3 u.
    """
    return spread(d_model + 2, u) / 2 + 3 * u


def apart(*errors: Array) -> Array:
    """Errors of one element that come of different roundings, together: they add as their squares do."""
    found: Array = np.sqrt(sum(np.square(error) for error in errors))
    return found


def tolerance(bound: Array, values: Array) -> float:
    """The largest bound / max(1, |value|): what the judge compares, when `bound` has the error of every element."""
    return float((bound / np.maximum(1.0, np.abs(values))).max())


def unit(problem: Problem) -> float:
    """Unit roundoff of a problem's arithmetic."""
    return UNIT_ROUNDOFF[COMPUTED_IN[problem.dtype]]


def as_rows(inputs: dict[str, Array], names: Sequence[str]) -> list[Array]:
    """Inputs [b,n,d] as rows [b*n,d] in float64."""
    return [inputs[name].reshape(-1, inputs[name].shape[-1]).astype(np.float64) for name in names]


# --- storage of sixteen bits ---


class Kept(NamedTuple):
    """How values are stored between the steps of a kernel: the unit roundoff of the storage, and half of its least
    subnormal number, by which numbers below its normal ones are moved. Both 0: as they were computed.
    """

    c: float
    h: float

    def nudged(self, values: Array) -> Array:
        """By how much storing moves a value at most, element by element."""
        found: Array = self.c * np.abs(values) + self.h
        return found

    def moved(self, values: Array, often: int = 1) -> Array:
        """By how much storing values moves sums over them, element by element.

        The roundings are independent, each uniform within c |v| + h to both sides, and so sub-Gaussian with its own
        variance, a third of that squared. Sums take their squares: DEVIATIONS standard deviations are passed with a
        probability of 2 exp(-DEVIATIONS**2 / 2), as `attention.spread` has it.

        Args:
            values: what is stored.
            often: how often, one time after the other.

        Source: Widrow and Kollar, "Quantization Noise", 2008, chapter 4 (the uniform rounding); Boucheron, Lugosi and
        Massart, "Concentration Inequalities", 2013, section 2.3 (sub-Gaussian sums).
        """
        found: Array = DEVIATIONS * (often / 3) ** 0.5 * self.nudged(values)
        return found


AS_COMPUTED = Kept(0.0, 0.0)


def kept(dtype: str) -> Kept:
    """How a variant of `"arithmetic": "cache"` stores what lies between its steps: in the dtype of the problem."""
    return AS_COMPUTED if COMPUTED_IN[dtype] == dtype else Kept(UNIT_ROUNDOFF[dtype], HALF_LEAST[dtype])


class Rounded(NamedTuple):
    """How a problem is computed: unit roundoff of the arithmetic, ways of storing what lies between the steps."""

    u: float
    ways: tuple[Kept, ...]


class Found(NamedTuple):
    """y of some rows [rows,d], and for each way the largest error against max(1, |y|)."""

    y: Array
    tolerances: tuple[float, ...]


def rounded(problem: Problem) -> Rounded:
    """How a problem is computed: nothing between the steps is stored in fewer bits, or all of it is."""
    return Rounded(unit(problem), tuple(dict.fromkeys((AS_COMPUTED, kept(problem.dtype)))))


def expected(problem: Problem, y: Array, found: Sequence[Found], rows: Array | None = None) -> Expected:
    """What y must be, its own rounding in its storage included, by what was found of its rows."""
    real, *cache = (stored(max(some), problem.dtype) for some in zip(*(part.tolerances for part in found), strict=True))
    return Expected(y, real, rows, cache_tolerance=(real, *cache)[-1])


def narrowed(found: dict[str, Array], dtype: str) -> dict[str, Array]:
    """Arrays in their storage."""
    return {name: narrow(array, dtype) for name, array in found.items()}


def widened(inputs: dict[str, Array], dtype: str) -> dict[str, Array]:
    """The numbers that arrays in storage hold, in the dtype of the arithmetic. Exact."""
    return {name: widen(array, dtype) for name, array in inputs.items()}


def massive(x: Array, magnitudes: Sequence[float]) -> None:
    """Make some elements of a row massive and give rows these factors in turn, in place; x [..,d], also a device's."""
    step, factor = MASSIVE
    x[..., ::step] *= factor
    rows = x.reshape(-1, x.shape[-1])
    for turn, size in enumerate(magnitudes):
        rows[turn :: len(magnitudes)] *= size
