"""The DNF of the gradients of the gated MLP. Letters, a, b and h as in gated.py; with a cotangent gy of y

gh[i,f] = sum over d of gy[i,d] wd[d,f]
ga[i,f] = gh[i,f] b[i,f] silu'(a[i,f])          gb[i,f] = gh[i,f] silu(a[i,f])
gx[i,d] = sum over f of ga[i,f] wg[f,d] + gb[i,f] wu[f,d]
gwg[f,d] = sum over i of ga[i,f] x[i,d]         gwu[f,d] = sum over i of gb[i,f] x[i,d]
gwd[d,f] = sum over i of gy[i,d] h[i,f]

with silu'(a) = s (1 + a (1 - s)), s = 1 / (1 + exp(-a)). a and b are made anew, nothing of the forward pass is kept.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

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

    `errors`: the same four of squares: those of the errors of ga, gb and h times those of what they meet. `across`:
    squares of ga and gb, summed over f: [2,rows]. `down`: squares of ga, gb and h, summed over rows: [3,f].
    """

    gx: Array
    gwg: Array
    gwu: Array
    gwd: Array
    errors: tuple[Array, Array, Array, Array]
    across: Array
    down: Array


class MlpBackwardSpec(GatedSpec):
    """gx, gwg, gwu and gwd of batch * n rows. Weights change from call to call here: none of them is constant."""

    name: ClassVar[str] = "mlp_backward"
    buffers: ClassVar[tuple[str, ...]] = ("x", "wg", "wu", "wd", "gy", "gx", "gwg", "gwu", "gwd")
    written: ClassVar[tuple[str, ...]] = ("gx", "gwg", "gwu", "gwd")
    linear: ClassVar[str] = "gy"

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
        do, each times what it meets; the sum itself is wrong by e(length) times the product of norms.
        """
        m, u = dims_of(problem), unit(problem)
        x, gy = as_rows(inputs, ["x", "gy"])
        weights = [inputs[name].astype(np.float64) for name in WEIGHTS]
        across, down = np.zeros((2, m.rows)), np.zeros((3, m.d_ff))
        found, errors = ([np.zeros(one.shape) for one in (x, *weights)] for _ in range(2))
        starts = range(0, m.rows, ROWS_AT_ONCE)
        for first in range(0, m.d_ff, WITHIN_AT_ONCE):
            some = slice(first, first + WITHIN_AT_ONCE)
            own = (weights[0][some], weights[1][some], weights[2][:, some])
            tasks = [slice(start, start + ROWS_AT_ONCE) for start in starts]
            parts = in_parallel(lambda rows, own=own: _part(x[rows], gy[rows], own, u), tasks)  # type: ignore[misc]
            for rows, part in zip(tasks, parts, strict=True):
                places: tuple[Any, ...] = (rows, some, some, (slice(None), some))
                for at, place in enumerate(places):
                    found[at][place] += part[at]
                    errors[at][place] += part.errors[at]
                across[:, rows] += part.across
                down[:, some] += part.down
        sums = _sums(x, gy, weights, (np.sqrt(across), np.sqrt(down)), u)
        shapes = self.shapes(problem)
        return {
            name: Expected(one.reshape(shapes[name]), tolerance(np.sqrt(squares) + bound + u * np.abs(one), one))
            for name, one, squares, bound in zip(self.written, found, errors, sums, strict=True)
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
    ga, gb, h, *errors = (np.square(one) for one in found)
    x_squares, gy_squares = np.square(x), np.square(gy)
    return Part(
        gx=found.ga @ weights[0] + found.gb @ weights[1],
        gwg=found.ga.T @ x,
        gwu=found.gb.T @ x,
        gwd=gy.T @ found.h,
        errors=(
            errors[0] @ np.square(weights[0]) + errors[1] @ np.square(weights[1]),
            errors[0].T @ x_squares,
            errors[1].T @ x_squares,
            gy_squares.T @ errors[2],
        ),
        across=np.stack([ga.sum(axis=1), gb.sum(axis=1)]),
        down=np.stack([one.sum(axis=0) for one in (ga, gb, h)]),
    )


def _sums(x: Array, gy: Array, weights: list[Array], sizes: tuple[Array, Array], u: float) -> tuple[Array, ...]:
    """What the sums of gx [rows,d], gwg, gwu [f,d] and gwd [d,f] are wrong by themselves."""
    wg, wu, _ = weights
    (ga, gb), (ga_down, gb_down, h_down) = sizes[0][:, :, None], sizes[1]
    over_f, over_rows = spread(2 * len(wg), u), spread(len(x), u)
    gx = over_f * (ga * norms(wg.T) + gb * norms(wu.T))
    gwg, gwu = (over_rows * np.outer(one, norms(x.T)) for one in (ga_down, gb_down))
    return gx, gwg, gwu, over_rows * np.outer(norms(gy.T), h_down)


SPEC = MlpBackwardSpec()
