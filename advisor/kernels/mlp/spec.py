"""The DNF of the gated MLP; gated.py has the formula and the letters."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels.attention import SAMPLED_FLOPS, in_parallel, spread
from advisor.kernels.gated import WEIGHTS, GatedSpec, dims_of, norms, sampled, sigmoid
from advisor.kernels.rms import tolerance, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem

ROWS_AT_ONCE, WITHIN_AT_ONCE = 1024, 2048
"""Rows and elements of h that exist in float64 at a time: 16 MiB."""

MOST_SLOPE = 1.1
"""The largest derivative of silu: 1.0998 at a = 2.4."""


class Part(NamedTuple):
    """What some elements f of h contribute to some rows: y [rows,d], squares of h [rows], and the squares of its errors
    times those of the weights that they meet [rows,d].
    """

    y: Array
    squares: Array
    errors: Array


class MlpSpec(GatedSpec):
    """The gated MLP on batch * n rows."""

    name: ClassVar[str] = "mlp"
    buffers: ClassVar[tuple[str, ...]] = ("x", "wg", "wu", "wd", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    linear: ClassVar[str] = "wd"
    constant: ClassVar[tuple[str, ...]] = WEIGHTS

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
        m, u = dims_of(problem), unit(problem)
        x = inputs["x"].reshape(-1, m.d_model)
        chosen = sampled(m.rows) if self.flops(problem) > SAMPLED_FLOPS else np.arange(m.rows)
        weights = [inputs[name] for name in WEIGHTS]
        tasks = [chosen[first : first + ROWS_AT_ONCE] for first in range(0, len(chosen), ROWS_AT_ONCE)]
        found = in_parallel(lambda rows: _rows(x[rows].astype(np.float64), weights, u), tasks)
        y, bounds = (np.concatenate(parts) for parts in zip(*found, strict=True))
        allowed = tolerance(bounds, y)
        if len(chosen) < m.rows:
            return {"y": Expected(y, allowed, chosen)}
        return {"y": Expected(y.reshape(inputs["x"].shape), allowed)}


def _rows(x: Array, weights: list[Array], u: float) -> tuple[Array, Array]:
    """y of some rows, and the error that rounding explains of each element.

    1. a and b are sums of d products: wrong by at most e(d) |x| |w|, with norms of the rows.
    2. silu moves by at most MOST_SLOPE times that; 1 + exp(-a) is wrong by u |a| for the rounding of the exponent and
       5 u for exponential, sum, quotient and storing.
    3. h = silu(a) b: the errors of both, each times the other, and u.
    4. y sums f terms h wd. The errors of h are those of different sums, so they add as their squares do, each
       times its weight; the sum itself is wrong by e(f) |h| |wd|.
    """
    width = weights[0].shape[0]
    y, squares, errors = np.zeros(x.shape), np.zeros(len(x)), np.zeros(x.shape)
    for first in range(0, width, WITHIN_AT_ONCE):
        part = _part(x, [one.astype(np.float64) for one in _slices(weights, first)], u)
        y += part.y
        squares += part.squares
        errors += part.errors
    wd = weights[2]
    rows_norm = np.sqrt(np.einsum("df,df->d", wd, wd, dtype=np.float64))
    bound = np.sqrt(errors) + spread(width, u) * np.sqrt(squares)[:, None] * rows_norm
    return y, bound + u * np.abs(y)


def _slices(weights: list[Array], first: int) -> tuple[Array, Array, Array]:
    some = slice(first, first + WITHIN_AT_ONCE)
    return weights[0][some], weights[1][some], weights[2][:, some]


def _part(x: Array, weights: list[Array], u: float) -> Part:
    wg, wu, wd = weights
    a, b = x @ wg.T, x @ wu.T
    silu = a * sigmoid(a)
    h = silu * b
    product = spread(x.shape[1], u) * norms(x)[:, None]
    gate = MOST_SLOPE * product * norms(wg) + (np.abs(a) + 5) * u * np.abs(silu)
    error = np.abs(b) * gate + np.abs(silu) * product * norms(wu) + u * np.abs(h)
    return Part(h @ wd.T, np.square(h).sum(axis=1), np.square(error) @ np.square(wd).T)


SPEC = MlpSpec()
