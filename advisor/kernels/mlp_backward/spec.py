"""The DNF of the gradients of the gated MLP. Letters, a, b and h as in gated.py; with a cotangent gy of y

gh[i,f] = sum over d of gy[i,d] wd[d,f]
ga[i,f] = gh[i,f] b[i,f] silu'(a[i,f])          gb[i,f] = gh[i,f] silu(a[i,f])
gx[i,d] = sum over f of ga[i,f] wg[f,d] + gb[i,f] wu[f,d]
gwg[f,d] = sum over i of ga[i,f] x[i,d]         gwu[f,d] = sum over i of gb[i,f] x[i,d]
gwd[d,f] = sum over i of gy[i,d] h[i,f]

with silu'(a) = s (1 + a (1 - s)), s = 1 / (1 + exp(-a)). a and b are made anew, nothing of the forward pass is kept.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels.attention import in_parallel, spread
from advisor.kernels.gated import WEIGHTS, GatedSpec, dims_of, norms, sigmoid
from advisor.kernels.rms import as_rows, tolerance, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem

ROWS_AT_ONCE, WITHIN_AT_ONCE = 1024, 1024
"""Rows and elements of h that exist in float64 at a time: 8 MiB."""

MOST_SLOPE, MOST_BEND = 1.1, 0.5
"""The largest |silu'|, 1.0998 at a = 2.4, and the largest |silu''|, 0.5 at a = 0."""


class Within(NamedTuple):
    """ga, gb and h of some rows and elements [rows,f], and the error that rounding explains of each."""

    ga: Array
    gb: Array
    h: Array
    ga_error: Array
    gb_error: Array
    h_error: Array


class Part(NamedTuple):
    """What some rows and elements f contribute to the gradients: gx [rows,d]; gwg, gwu [f,d]; gwd [d,f].

    `across`: squares of ga, gb and of their errors, summed over f: [4,rows]. `down`: squares of ga, gb, h and of their
    errors, summed over rows: [6,f].
    """

    gx: Array
    gwg: Array
    gwu: Array
    gwd: Array
    across: Array
    down: Array


class MlpBackwardSpec(GatedSpec):
    """gx, gwg, gwu and gwd of batch * n rows. Weights change from call to call here: none of them is constant."""

    name: ClassVar[str] = "mlp_backward"
    buffers: ClassVar[tuple[str, ...]] = ("x", "wg", "wu", "wd", "gy", "gx", "gwg", "gwu", "gwd")
    written: ClassVar[tuple[str, ...]] = ("gx", "gwg", "gwu", "gwd")

    def flops(self, problem: Problem) -> int:
        """Eight products of 2 d f a row: a, b, gh, two of gx, one a weight; 13 f for silu, its slope, ga, gb and h."""
        m = dims_of(problem)
        return m.rows * m.d_ff * (16 * m.d_model + 13)

    def elements(self, problem: Problem) -> Elements:
        """3 n d + 6 d f with n rows of all sequences: x, gy and weights are read once, all gradients written once."""
        m = dims_of(problem)
        weights = 3 * m.d_model * m.d_ff
        return Elements(read=2 * m.rows * m.d_model + weights, written=m.rows * m.d_model + weights)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """All gradients in float64. Each weight's sums over all rows, so none of them can be known for less.

        Sums are bounded as in mlp/spec.py: errors of their terms, which come from different sums, add as their squares
        do, times the largest number that they meet; the sum itself is wrong by e(length) times the product of norms.
        """
        m, u = dims_of(problem), unit(problem)
        x, gy = as_rows(inputs, ["x", "gy"])
        weights = [inputs[name].astype(np.float64) for name in WEIGHTS]
        gx, across = np.zeros(x.shape), np.zeros((4, m.rows))
        found = [np.zeros(one.shape) for one in weights]
        down = np.zeros((6, m.d_ff))
        starts = range(0, m.rows, ROWS_AT_ONCE)
        for first in range(0, m.d_ff, WITHIN_AT_ONCE):
            some = slice(first, first + WITHIN_AT_ONCE)
            own = (weights[0][some], weights[1][some], weights[2][:, some])
            tasks = [slice(start, start + ROWS_AT_ONCE) for start in starts]
            parts = in_parallel(lambda rows, own=own: _part(x[rows], gy[rows], own, u), tasks)  # type: ignore[misc]
            for rows, part in zip(tasks, parts, strict=True):
                gx[rows] += part.gx
                across[:, rows] += part.across
                found[0][some] += part.gwg
                found[1][some] += part.gwu
                found[2][:, some] += part.gwd
                down[:, some] += part.down
        bounds = _bounds(x, gy, weights, (np.sqrt(across), np.sqrt(down)), u)
        values = (gx.reshape(inputs["x"].shape), *found)
        bounds = (bounds[0].reshape(inputs["x"].shape), *bounds[1:])
        return {
            name: Expected(one, tolerance(bound + u * np.abs(one), one))
            for name, one, bound in zip(self.written, values, bounds, strict=True)
        }


def _within(x: Array, gy: Array, weights: tuple[Array, Array, Array], u: float) -> Within:
    """As in mlp/spec.py for a, b and silu; gh is a sum of d products too, and the slope moves by MOST_BEND times a's
    error and (|a| + 8) u for its own operations.
    """
    wg, wu, wd = weights
    a, b, gh = x @ wg.T, x @ wu.T, gy @ wd
    s = sigmoid(a)
    silu, slope = a * s, s * (1 + a * (1 - s))
    product = spread(x.shape[1], u)
    size = product * norms(x)[:, None]
    a_error, b_error = size * norms(wg), size * norms(wu)
    gh_error = product * norms(gy)[:, None] * norms(wd.T)
    silu_error = MOST_SLOPE * a_error + (np.abs(a) + 5) * u * np.abs(silu)
    slope_error = MOST_BEND * a_error + (np.abs(a) + 8) * u * MOST_SLOPE
    ga, gb, h = gh * b * slope, gh * silu, silu * b
    ga_error = np.abs(b * slope) * gh_error + np.abs(gh * slope) * b_error + np.abs(gh * b) * slope_error
    gb_error = np.abs(silu) * gh_error + np.abs(gh) * silu_error
    h_error = np.abs(b) * silu_error + np.abs(silu) * b_error
    rounded = [error + 2 * u * np.abs(one) for error, one in ((ga_error, ga), (gb_error, gb), (h_error, h))]
    return Within(ga, gb, h, *rounded)


def _part(x: Array, gy: Array, weights: tuple[Array, Array, Array], u: float) -> Part:
    found = _within(x, gy, weights, u)
    squares = [np.square(one) for one in found]
    return Part(
        gx=found.ga @ weights[0] + found.gb @ weights[1],
        gwg=found.ga.T @ x,
        gwu=found.gb.T @ x,
        gwd=gy.T @ found.h,
        across=np.stack([squares[index].sum(axis=1) for index in (0, 1, 3, 4)]),
        down=np.stack([one.sum(axis=0) for one in squares]),
    )


def _bounds(x: Array, gy: Array, weights: list[Array], sizes: tuple[Array, Array], u: float) -> tuple[Array, ...]:
    """Bounds of the errors of gx [rows,d], gwg, gwu [f,d] and gwd [d,f]."""
    wg, wu, _ = weights
    (ga, gb, ga_error, gb_error), (ga_down, gb_down, h_down, *errors_down) = sizes[0][:, :, None], sizes[1]
    over_f, over_rows = spread(2 * len(wg), u), spread(len(x), u)
    gx = ga_error * np.abs(wg).max(axis=0) + gb_error * np.abs(wu).max(axis=0)
    gx += over_f * (ga * norms(wg.T) + gb * norms(wu.T))
    most_x, size_x, most_gy, size_gy = np.abs(x).max(axis=0), norms(x.T), np.abs(gy).max(axis=0), norms(gy.T)
    gwg = np.outer(errors_down[0], most_x) + over_rows * np.outer(ga_down, size_x)
    gwu = np.outer(errors_down[1], most_x) + over_rows * np.outer(gb_down, size_x)
    gwd = np.outer(most_gy, errors_down[2]) + over_rows * np.outer(size_gy, h_down)
    return gx, gwg, gwu, gwd


SPEC = MlpBackwardSpec()
