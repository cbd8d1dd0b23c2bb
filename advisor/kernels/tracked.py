"""Numbers in float64 together with the error that rounding explains of each: for kernels that are chains of others.

A kernel of one step has its bound written out. In a chain every step's result is wrong by what its inputs were wrong
by, and by its own rounding; here each operation makes the one from the other, element by element:

1. A sum of m rounded terms t is wrong by e(m) (|sum of t| + |t|), with |t| the euclidean norm of the terms: its partial
   sums walk to the result as those of terms in no order do. That is sharper than e(m) times the sum of magnitudes by up
   to sqrt(m), which a chain needs: ten steps of the other bound would allow everything. It takes terms that are in no
   order, which drawn inputs are. The errors of the terms are those of different sums: they add as their squares do.
2. What elements have in common does not cancel so: it is added up as it is (`Scaled.common`).
3. A value that is stored between two steps in fewer bits is moved, see `rms.Kept`: `moved` where sums take it up,
   `nudged` where it is passed on element by element.

All works on numpy's arrays, and on a device's, which take numpy's functions over.

Source of 1: Higham and Mary, "Sharper probabilistic backward error analysis for basic linear algebra kernels with
random data", SIAM J. Sci. Comput. 42(5), 2020, section 3: of terms without a mean the error of a sum does not grow with
m against sqrt(m) |t|; with a mean it grows as `attention.spread` says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advisor.kernels.attention import spread
from advisor.kernels.gated import sigmoid
from advisor.kernels.rms import AS_COMPUTED, Kept, apart, scale_error, scales
from advisor.kernels.spec import Array

MOST_SLOPE, MOST_BEND = 1.1, 0.5
"""The largest |silu'|, 1.0998 at a = 2.4, and the largest |silu''|, 0.5 at a = 0."""


class Tracked(NamedTuple):
    """Values and the largest error of each that rounding explains, of the same shape."""

    value: Array
    error: Array

    @property
    def T(self) -> Tracked:  # noqa: N802 as numpy has it
        """Both transposed."""
        return Tracked(self.value.T, self.error.T)

    def at(self, index: Any) -> Tracked:
        """Some elements of both."""
        return Tracked(self.value[index], self.error[index])

    def shaped(self, *shape: int) -> Tracked:
        """Both in another shape."""
        return Tracked(self.value.reshape(shape), self.error.reshape(shape))


class Scaled(NamedTuple):
    """Rows that RMSNorm made: `rows` [rows,d] with the errors of their own elements; r [rows,1]; `common` [rows,1]: the
    relative error of r, which all elements of a row share.
    """

    rows: Tracked
    r: Array
    common: Array

    @property
    def whole(self) -> Tracked:
        """The rows with all of their errors."""
        return Tracked(self.rows.value, self.rows.error + self.common * np.abs(self.rows.value))

    def some(self, rows: Array) -> Scaled:
        """Chosen rows."""
        return Scaled(self.rows.at(rows), self.r[rows], self.common[rows])


def exact(value: Array) -> Tracked:
    """What is given: without error."""
    return Tracked(value, np.zeros_like(value))


def stored(a: Tracked, way: Kept) -> Tracked:
    """What sums take up, once it was stored."""
    return Tracked(a.value, apart(a.error, way.moved(a.value)))


def passed(a: Tracked, way: Kept) -> Tracked:
    """What is passed on element by element, once it was stored."""
    return Tracked(a.value, a.error + way.nudged(a.value))


def joined(parts: list[Tracked], axis: int = 0) -> Tracked:
    """Parts one behind the other."""
    return Tracked(*(np.concatenate(pieces, axis=axis) for pieces in zip(*parts, strict=True)))


def product(a: Tracked, b: Array, u: float, length: int | None = None) -> Tracked:
    """a [m,k] times b [k,n], of which b has no error. `length`: of the whole sum, where this is a part of it."""
    value, rounded = a.value @ b, spread(length or a.value.shape[1], u)
    squares = np.square(a.error) + np.square(rounded * a.value)
    return Tracked(value, np.sqrt(squares @ np.square(b)) + rounded * np.abs(value))


def both(a: Tracked, b: Tracked, u: float) -> Tracked:
    """a [m,k] times b [k,n], both with errors."""
    found = product(a, b.value, u)
    return Tracked(found.value, found.error + np.sqrt(np.square(a.value) @ np.square(b.error)))


def summed(terms: Tracked, axis: int, u: float) -> Tracked:
    """The sum along an axis, which stays with length 1."""
    value, rounded = terms.value.sum(axis=axis, keepdims=True), spread(terms.value.shape[axis], u)
    squares = np.square(terms.error) + np.square(rounded * terms.value)
    return Tracked(value, np.sqrt(squares.sum(axis=axis, keepdims=True)) + rounded * np.abs(value))


def total(a: Tracked, b: Tracked, u: float) -> Tracked:
    """a + b."""
    value = a.value + b.value
    return Tracked(value, a.error + b.error + u * np.abs(value))


def times(a: Tracked, b: Tracked, u: float) -> Tracked:
    """a b, element by element."""
    value = a.value * b.value
    return Tracked(value, np.abs(a.value) * b.error + np.abs(b.value) * a.error + u * np.abs(value))


# --- RMSNorm ---


def normalised(x: Tracked, g: Array, u: float, way: Kept = AS_COMPUTED, often: int = 2) -> Scaled:
    """x r g. An error of x moves r by r**3 / d times the sum of x times it; r's own is `rms.scale_error`.

    Args:
        x: rows [rows,d].
        g: the gain [d].
        u: unit roundoff.
        way: how rows are stored.
        often: how often they were: as x r and as x r g, and before that as x where that was made by other steps.
    """
    width = x.value.shape[1]
    r = scales(x.value)[:, None]
    moved = np.sqrt((np.square(x.value) * np.square(x.error)).sum(axis=1, keepdims=True)) / width
    value = x.value * r * g
    error = apart(np.abs(r * g) * x.error + 2 * u * np.abs(value), way.moved(value, often))
    return Scaled(Tracked(value, error), r, scale_error(width, u) + r * r * moved)


def projected(x: Scaled, w: Array, u: float) -> Tracked:
    """Normalised rows times w [columns,d] transposed. Weights that have g in them already, and sums that take r at the
    end, are rounded as often.
    """
    found = product(x.rows, w.T, u, x.rows.value.shape[1] + 2)
    return Tracked(found.value, found.error + x.common * np.abs(found.value))


def norm_gradients(x: Tracked, scaled: Scaled, g: Array, gy: Tracked, u: float) -> tuple[Tracked, Tracked]:
    """gx [rows,d] and gg [d] of RMSNorm for a cotangent of its result; rms.py has the formulas."""
    width, r = x.value.shape[1], scaled.r
    c = summed(times(times(gy, exact(np.broadcast_to(g, gy.value.shape)), u), x, u), 1, u)
    ahead, back = r * gy.value * g, x.value * r**3 * c.value / width
    error = np.abs(r * g) * gy.error + (scaled.common + 2 * u) * np.abs(ahead)
    error += np.abs(r**3 * c.value / width) * x.error + (3 * scaled.common + 5 * u) * np.abs(back)
    error += np.abs(x.value) * r**3 / width * c.error
    gx = Tracked(ahead - back, error + u * np.abs(ahead - back))
    terms = times(gy, Tracked(x.value * r, np.abs(r) * x.error), u)
    gg = summed(Tracked(terms.value, terms.error + (scaled.common + u) * np.abs(terms.value)), 0, u)
    return gx, Tracked(gg.value[0], gg.error[0])


# --- the gate of the MLP ---


class Gate(NamedTuple):
    """silu of a, its slope, and h = silu(a) b."""

    silu: Tracked
    slope: Tracked
    h: Tracked


def gated(a: Tracked, b: Tracked, u: float, way: Kept = AS_COMPUTED) -> Gate:
    """silu and its slope move by at most MOST_SLOPE and MOST_BEND times the error of a; 1 + exp(-a) is wrong by u |a|
    for the rounding of the exponent, and there are 5 and 8 operations. a and b are sums of other weights each: their
    errors are apart. a, b, silu(a) and h may be stored on the way.
    """
    a, b, s = stored(a, way), stored(b, way), sigmoid(a.value)
    silu, slope = a.value * s, s * (1 + a.value * (1 - s))
    rounded = np.abs(a.value) * u
    first = Tracked(silu, MOST_SLOPE * a.error + (rounded + 5 * u) * np.abs(silu))
    second = Tracked(slope, MOST_BEND * a.error + (rounded + 8 * u) * MOST_SLOPE)
    kept, h = stored(first, way), silu * b.value
    error = apart(np.abs(b.value) * kept.error, np.abs(silu) * b.error) + u * np.abs(h)
    return Gate(first, second, stored(Tracked(h, error), way))
