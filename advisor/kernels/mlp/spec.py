"""The DNF of the gated MLP; gated.py has the formula and the letters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels.attention import SAMPLED_FLOPS, in_parallel, spread
from advisor.kernels.gated import WEIGHTS, GatedSpec, dims_of, norms, sampled, sigmoid
from advisor.kernels.rms import Found, Rounded, apart, expected, rounded, tolerance, widened
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem

ROWS_AT_ONCE, WITHIN_AT_ONCE = 1024, 2048
"""Rows and elements of h that exist in float64 at a time: 16 MiB."""

MOST_SLOPE = 1.1
"""The largest derivative of silu: 1.0998 at a = 2.4."""


class Part(NamedTuple):
    """What some elements f of h contribute to some rows: y [rows,d]; squares of h [rows], of wd [d]; for each way of
    storing what lies between, the squares of its errors times those of the weights that they meet [rows,d].
    """

    y: Array
    squares: Array
    weights: Array
    errors: tuple[Array, ...]

    def add(self, other: Part) -> Part:
        """Both together."""
        errors = tuple(mine + its for mine, its in zip(self.errors, other.errors, strict=True))
        return Part(self.y + other.y, self.squares + other.squares, self.weights + other.weights, errors)


class MlpSpec(GatedSpec):
    """The gated MLP on batch * n rows."""

    name: ClassVar[str] = "mlp"
    buffers: ClassVar[tuple[str, ...]] = ("x", "wg", "wu", "wd", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    linear: ClassVar[str] = "wd"
    constant: ClassVar[tuple[str, ...]] = WEIGHTS
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "float16")

    def flops(self, problem: Problem) -> int:
        """Three products of 2 d f each a row; 5 f for exponential, sum, quotient and two products of the gate."""
        m = dims_of(problem)
        return m.rows * m.d_ff * (6 * m.d_model + 5)

    def elements(self, problem: Problem) -> Elements:
        """M_mlp = 2 n d + 3 d f with n rows of all sequences: x and the weights are read once, y is written once.

        a, b and h are intermediate values of the formula: they need not be stored, so they cost nothing here. The
        paper's M_block = 24 n d + 4 n f counts for a whole block what rows move, and leaves the weights out.
        """
        m = dims_of(problem)
        return Elements(read=m.rows * m.d_model + 3 * m.d_model * m.d_ff, written=m.rows * m.d_model)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """y in float64, of chosen rows where all would take too long."""
        m, of = dims_of(problem), widened(inputs, problem.dtype)
        x = of["x"].reshape(-1, m.d_model)
        chosen = sampled(m.rows) if self.flops(problem) > SAMPLED_FLOPS else np.arange(m.rows)
        weights, how = [of[name] for name in WEIGHTS], rounded(problem)
        tasks = [chosen[first : first + ROWS_AT_ONCE] for first in range(0, len(chosen), ROWS_AT_ONCE)]
        found = in_parallel(lambda rows: of_rows(x[rows].astype(np.float64), weights, how), tasks)
        y = np.concatenate([part.y for part in found])
        if len(chosen) < m.rows:
            return {"y": expected(problem, y, found, chosen)}
        return {"y": expected(problem, y.reshape(inputs["x"].shape), found)}


def of_rows(x: Array, weights: Sequence[Array], how: Rounded) -> Found:
    """y of some rows, and the error that rounding explains; x [rows,d] in float64. Also of a device's arrays.

    1. a and b are sums of d products: wrong by at most e(d) |x| |w|, with norms of the rows.
    2. silu moves by at most MOST_SLOPE times that; 1 + exp(-a) is wrong by u |a| for the rounding of the exponent and
       5 u for exponential, sum, quotient and storing.
    3. h = silu(a) b: the errors of both, each times the other, and u.
    4. y sums f terms h wd. The errors of h are those of different sums, so they add as their squares do, each
       times its weight; the sum itself is wrong by e(f) |h| |wd|.
    5. a, b, silu(a) and h may be stored in fewer bits: each is moved by its `Kept.moved`, apart from all else.
    """
    width = weights[0].shape[0]
    parts = (_part(x, _slices(weights, first), how) for first in range(0, width, WITHIN_AT_ONCE))
    whole = functools.reduce(Part.add, parts)
    summed = spread(width, how.u) * np.sqrt(whole.squares)[:, None] * np.sqrt(whole.weights) + how.u * np.abs(whole.y)
    return Found(whole.y, tuple(tolerance(np.sqrt(errors) + summed, whole.y) for errors in whole.errors))


def _slices(weights: Sequence[Array], first: int) -> tuple[Array, Array, Array]:
    """The weights of some f in float64."""
    some = slice(first, first + WITHIN_AT_ONCE)
    wg, wu, wd = weights[0][some], weights[1][some], weights[2][:, some]
    return wg.astype(np.float64), wu.astype(np.float64), wd.astype(np.float64)


def _part(x: Array, weights: tuple[Array, Array, Array], how: Rounded) -> Part:
    wg, wu, wd = weights
    a, b, u = x @ wg.T, x @ wu.T, how.u
    silu = a * sigmoid(a)
    h = silu * b
    product = spread(x.shape[1], u) * norms(x)[:, None]
    rounding = (np.abs(a) + 5) * u * np.abs(silu)
    error = np.abs(b) * (MOST_SLOPE * product * norms(wg) + rounding)
    error += np.abs(silu) * product * norms(wu) + u * np.abs(h)
    squares, errors = np.square(wd), []
    for way in how.ways:
        gate = apart(MOST_SLOPE * way.moved(a), way.moved(silu))
        between = apart(np.abs(b) * gate, np.abs(silu) * way.moved(b), way.moved(h))
        errors.append(np.square(apart(error, between)) @ squares.T)
    return Part(h @ wd.T, np.square(h).sum(axis=1), squares.sum(axis=1), tuple(errors))


SPEC = MlpSpec()
