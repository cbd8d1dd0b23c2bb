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

from advisor.kernels.attention import SAMPLED_FLOPS, in_parallel, spread
from advisor.kernels.gated import GatedSpec, dims_of, norms, sampled, sigmoid
from advisor.kernels.rms import as_rows, tolerance, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem

ROWS_AT_ONCE, WITHIN_AT_ONCE = 1024, 1024
"""Rows and elements of h that exist in float64 at a time: 8 MiB."""

SAMPLED_WEIGHTS = 1 << 20
"""Past so many elements of one weight all gradients take seconds even for one row: each passes through memory often."""

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


class Bounded(NamedTuple):
    """Gradients, and the error that rounding explains of each element."""

    value: Array
    bound: Array


Weights = tuple[Array, Array, Array]
"""wg, wu [f,d] and wd [d,f] of all f or of some."""


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
        """All gradients in float64; of chosen rows, and of chosen elements f, where all would take too long.

        A row of gx needs all f and no other row. What a weight of one f gets needs all rows and no other f: a row of
        gwg and of gwu, a column of gwd.
        """
        m, u = dims_of(problem), unit(problem)
        large = self.flops(problem) > SAMPLED_FLOPS or m.d_model * m.d_ff > SAMPLED_WEIGHTS
        rows, within = (sampled(count) if large else np.arange(count) for count in (m.rows, m.d_ff))
        x, gy = as_rows(inputs, ["x", "gy"])
        weights = inputs["wg"], inputs["wu"], inputs["wd"]
        of_rows = in_parallel(lambda some: _row_gradients(x[some], gy[some], weights, u), _split(rows, ROWS_AT_ONCE))
        parts = _split(within, WITHIN_AT_ONCE)
        of_weights = in_parallel(lambda some: _weight_gradients(x, gy, _at(weights, some), u), parts)
        gx = _joined(of_rows, 0)
        gwg, gwu, gwd = (_joined([part[at] for part in of_weights], int(at == 2)) for at in range(3))
        if not large:
            found = {"gx": gx._replace(value=gx.value.reshape(inputs["x"].shape)), "gwg": gwg, "gwu": gwu, "gwd": gwd}
            return {name: _expected(one) for name, one in found.items()}
        of_f = {"gwg": _expected(gwg, rows=within), "gwu": _expected(gwu, rows=within)}
        return {"gx": _expected(gx, rows=rows), **of_f, "gwd": _expected(gwd, columns=within)}


def _expected(found: Bounded, rows: Array | None = None, columns: Array | None = None) -> Expected:
    known = found.value.reshape(found.bound.shape)
    return Expected(found.value, tolerance(found.bound, known), rows, columns=columns)


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


def _row_gradients(x: Array, gy: Array, weights: Weights, u: float) -> Bounded:
    """gx of some rows, summed over all f.

    Sums are bounded as in mlp/spec.py: errors of their terms, which come from different sums, add as their squares do,
    each times what it meets; the sum itself is wrong by e(length) times the product of norms.
    """
    width = weights[0].shape[0]
    gx, errors, squares = np.zeros(x.shape), np.zeros(x.shape), np.zeros((2, len(x)))
    norms_of = np.zeros((2, x.shape[1]))
    for some in _split(np.arange(width), WITHIN_AT_ONCE):
        own = _at(weights, some)
        found = _within(x, gy, own, u)
        gx += found.ga @ own[0] + found.gb @ own[1]
        for at, (one, error) in enumerate(((found.ga, found.ga_error), (found.gb, found.gb_error))):
            errors += np.square(error) @ np.square(own[at])
            squares[at] += np.square(one).sum(axis=1)
            norms_of[at] += np.square(own[at]).sum(axis=0)
    sizes = np.sqrt(squares)[:, :, None] * np.sqrt(norms_of)[:, None]
    return Bounded(gx, np.sqrt(errors) + spread(2 * width, u) * sizes.sum(axis=0) + u * np.abs(gx))


def _weight_gradients(x: Array, gy: Array, own: Weights, u: float) -> tuple[Bounded, Bounded, Bounded]:
    """gwg and gwu [f,d] and gwd [d,f] of some f, summed over all rows; bounded as `_row_gradients`."""
    shapes = own[0].shape, own[0].shape, own[2].shape
    values, errors = ([np.zeros(shape) for shape in shapes] for _ in range(2))
    squares = np.zeros((3, len(own[0])))
    for rows in _split(np.arange(len(x)), ROWS_AT_ONCE):
        some = slice(rows[0], rows[-1] + 1)
        found = _within(x[some], gy[some], own, u)
        pairs = (found.ga, found.ga_error), (found.gb, found.gb_error), (found.h, found.h_error)
        for at, (one, error) in enumerate(pairs):
            other = gy[some] if at == 2 else x[some]
            product, wrong = one.T @ other, np.square(error).T @ np.square(other)
            values[at] += product.T if at == 2 else product
            errors[at] += wrong.T if at == 2 else wrong
            squares[at] += np.square(one).sum(axis=0)
    sizes, of_x, of_gy = spread(len(x), u) * np.sqrt(squares), norms(x.T), norms(gy.T)
    sums = np.outer(sizes[0], of_x), np.outer(sizes[1], of_x), np.outer(of_gy, sizes[2])
    found_all = [
        Bounded(value, np.sqrt(error) + own_sum + u * np.abs(value))
        for value, error, own_sum in zip(values, errors, sums, strict=True)
    ]
    return found_all[0], found_all[1], found_all[2]


def _split(places: Array, most: int) -> list[Array]:
    """The places, so many at a time."""
    return [places[first : first + most] for first in range(0, len(places), most)]


def _at(weights: Weights, within: Array) -> Weights:
    """The weights of some f in float64."""
    first, last = (int(within[0]), int(within[-1]) + 1) if len(within) else (0, 0)
    some: Any = slice(first, last) if last - first == len(within) else within
    wg, wu, wd = (one.astype(np.float64) for one in (weights[0][some], weights[1][some], weights[2][:, some]))
    return wg, wu, wd


def _joined(parts: list[Bounded], axis: int) -> Bounded:
    values, bounds = zip(*parts, strict=True)
    return Bounded(np.concatenate(values, axis), np.concatenate(bounds, axis))


SPEC = MlpBackwardSpec()
