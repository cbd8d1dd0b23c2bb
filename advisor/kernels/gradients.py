"""Gradients of attention in float64, all rows or chosen ones, with the tolerances that rounding explains.

The formulas and the letters are those of attention.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from advisor.errors import BadInput
from advisor.kernels.attention import (
    DEVIATIONS,
    HALF_LEAST,
    Dims,
    Head,
    blocks,
    dims_of,
    flat,
    forward,
    heads_of,
    in_parallel,
    norm,
    out_tolerances,
    rounding,
    sampled,
    spread,
)
from advisor.kernels.spec import UNIT_ROUNDOFF, Array, Expected
from advisor.records import Problem

LOSS_SCALE = 2.0**-6
"""What a cotangent is scaled by where values of outlier scale meet float16: gk reaches 1e5 there, past its 65504. A
trainer in float16 scales its loss for the same reason."""


class Known(NamedTuple):
    """What a forward pass left, as arrays of numpy or of a device: out [b,h,n,d], lse [b,h,n], numbers as stored."""

    out: Any
    lse: Any


class Piece(NamedTuple):
    """What some query rows of one head contribute. gq [rows,d]; gk, gv [n,d] to be summed over rows.

    `columns` [3,n]: sums of squares of the columns of P, of GS, and of P |gout * out| (a norm over d). `sizes` [4]:
    the largest norms of rows of P, GS and gout * out, and the largest sum over j of P |gP|.
    """

    gq: Any
    gk: Any
    gv: Any
    columns: Any
    sizes: Any


class Gradients(NamedTuple):
    """The gradients of a problem in float64, of all rows or of `rows` of every head, and the norms that bound errors.

    Attributes:
        gq: [b,h,rows,d].
        gk: [b,g,rows,d], and gv likewise.
        out: [b,h,rows,d].
        rows: which rows of every head; None: all.
        weights: the largest norm of a row of P, and of a column of P (over the query heads that share it).
        scores: the same for GS.
        cotangents: the largest sum over j of P |gP|.
        deltas: the largest |gout * out| of a row, elementwise; the largest norm of a column of P times that.
    """

    gq: Any
    gk: Any
    gv: Any
    out: Any
    rows: Array | None
    weights: tuple[float, float]
    scores: tuple[float, float]
    cotangents: float
    deltas: tuple[float, float]


def scaled(gout: Any, dtype: str, draw: str) -> Any:
    """A cotangent whose gradients the dtype can hold; see LOSS_SCALE.

    Args:
        gout: in its storage, of numpy or of a device.
        dtype: that of the problem.
        draw: what the inputs are drawn from.
    """
    return gout * gout.dtype.type(LOSS_SCALE) if (dtype, draw) == ("float16", "outlier") else gout


def _cotangent(head: Head) -> Any:
    if head.gout is None:
        raise BadInput("gradients need a cotangent", got="no gout among the inputs")
    return head.gout


def _weighed(xp: Any, head: Head, rows: Any, columns: Any, known: Known) -> tuple[Any, Any]:
    """P and gP of some rows and columns of a head. rows, columns: slices, or numpy's indices of numpy's arrays."""
    scores = head.q[rows] @ head.k[columns].T
    scores *= 1 / math.sqrt(head.q.shape[1])
    scores -= known.lse[rows].astype(np.float64)[:, None]
    if head.causal:
        places = xp.arange(len(head.k))
        scores[places[columns] > places[rows][:, None]] = -np.inf
    return xp.exp(scores, out=scores), _cotangent(head)[rows] @ head.v[columns].T


def _terms(head: Head, rows: Any, known: Known) -> Any:
    """gout * out of some rows, elementwise: delta is its sum over d."""
    return _cotangent(head)[rows] * known.out[rows].astype(np.float64)


def _squares(xp: Any, weights: Any, gs: Any, terms: Any) -> Any:
    """See Piece.columns."""
    squares, lengths = xp.square(weights), xp.square(terms).sum(axis=1)
    return xp.stack([squares.sum(axis=0), xp.square(gs).sum(axis=0), lengths @ squares])


def _piece(xp: Any, head: Head, rows: Any, known: Known) -> Piece:
    gout, scale = _cotangent(head)[rows], 1 / math.sqrt(head.q.shape[1])
    weights, product = _weighed(xp, head, rows, slice(None), known)
    cotangents, terms = (weights * xp.abs(product)).sum(axis=1).max(), _terms(head, rows, known)
    product -= terms.sum(axis=1, keepdims=True)
    product *= weights  # GS
    lengths = [xp.sqrt(xp.square(one).sum(axis=1).max()) for one in (weights, product, terms)]
    return Piece(
        gq=scale * (product @ head.k),
        gk=scale * (product.T @ head.q[rows]),
        gv=weights.T @ gout,
        columns=_squares(xp, weights, product, terms),
        sizes=xp.stack([*lengths, cotangents]),
    )


def all_rows(m: Dims, inputs: dict[str, Any], known: Known, xp: Any = np) -> Gradients:
    """The gradients of every row; scores of ROWS_AT_ONCE rows exist at a time, with numpy on each thread.

    Args:
        m: the problem.
        inputs: q, gout [b,h,n,d], k, v [b,g,n,d], arrays of `xp` that hold numbers (bfloat16 widened).
        known: of the forward pass, arrays of `xp`: rows of gk and gv need out and lse of every query row.
        xp: numpy or the array module of a device.

    Returns:
        Arrays of `xp`.
    """
    gq, gk, gv = (xp.zeros((m.batch, heads, m.n, m.head_dim)) for heads in (m.heads, m.kv_heads, m.kv_heads))
    columns, sizes = xp.zeros((m.batch, m.kv_heads, 3, m.n)), xp.zeros(4)
    for b, h, head in heads_of(m, inputs):
        g, own = h // m.sharing, Known(known.out[b, h], known.lse[b, h])
        for rows, piece in _pieces(xp, head, own):
            gq[b, h, rows] = piece.gq
            gk[b, g] += piece.gk
            gv[b, g] += piece.gv
            columns[b, g] += piece.columns
            sizes = xp.maximum(sizes, piece.sizes)
    return _gradients((gq, gk, gv, known.out), None, columns, sizes)


def _pieces(xp: Any, head: Head, known: Known) -> Iterable[tuple[slice, Piece]]:
    """The pieces of one head, side by side where numpy makes them."""
    parts = [slice(int(rows[0]), int(rows[-1]) + 1) for rows in blocks(len(head.q))]
    if xp is np:
        return zip(parts, in_parallel(lambda rows: _piece(np, head, rows, known), parts), strict=True)
    return ((rows, _piece(xp, head, rows, known)) for rows in parts)


def some_rows(m: Dims, inputs: dict[str, Array], known: Known) -> Gradients:
    """The gradients of chosen rows of every head: a whole reference would take too long on a CPU.

    Args:
        m: the problem.
        inputs: as for all_rows, of numpy.
        known: likewise.
    """
    rows = sampled(m)
    gq = np.zeros((m.batch, m.heads, len(rows), m.head_dim))
    gk, gv = (np.zeros((m.batch, m.kv_heads, len(rows), m.head_dim)) for _ in range(2))
    columns, sizes = np.zeros((m.batch, m.kv_heads, 3, len(rows))), np.zeros(4)
    for b, h, head in heads_of(m, inputs):
        g, own = h // m.sharing, Known(known.out[b, h], known.lse[b, h])
        piece = _piece(np, head, rows, own)
        gq[b, h] = piece.gq
        sizes = np.maximum(sizes, piece.sizes)
        key_gradient, value_gradient, squares = _columns(head, rows, own)
        gk[b, g] += key_gradient
        gv[b, g] += value_gradient
        columns[b, g] += squares
    return _gradients((gq, gk, gv, known.out[:, :, rows]), rows, columns, sizes)


def _columns(head: Head, columns: Array, known: Known) -> tuple[Array, Array, Array]:
    """Rows j of gk and gv of one head, and the sums of Piece.columns of these j."""
    every = slice(None)
    weights, gs = _weighed(np, head, every, columns, known)
    terms = _terms(head, every, known)
    gs = weights * (gs - terms.sum(axis=1, keepdims=True))
    gk = (gs.T @ head.q) / math.sqrt(head.q.shape[1])
    return gk, weights.T @ _cotangent(head), _squares(np, weights, gs, terms)


def _gradients(values: tuple[Any, Any, Any, Any], rows: Array | None, columns: Any, sizes: Any) -> Gradients:
    rows_of, columns_of = sizes.tolist(), (columns.max(axis=(0, 1, 3)) ** 0.5).tolist()
    weights, scores, deltas = zip(rows_of[:3], columns_of, strict=True)
    return Gradients(*values, rows, weights, scores, rows_of[3], deltas)


def expected(problem: Problem, inputs: dict[str, Any], found: Gradients) -> dict[str, Expected]:
    """out, gq, gk, gv with their tolerances; those of out are attention.out_tolerances.

    `tolerance`: real arithmetic (see _of_arithmetic), the results rounded to their storage. With c that storage's unit
    roundoff and h half its least subnormal number, a result x is moved by c |x| + h; divided by max(1, |x|) as errors
    are, that is at most c min(1, the largest |x|) + h.

    `cache_tolerance`: P, GS and out rounded to the storage before they are used, as well (see _of_rounding).

    One bound holds for all rows. Where inputs are of outlier scale it allows for the largest row, and may hide a key
    that a loop leaves out, or a missing scale, in all others; normal numbers, on which every edge is checked as well,
    show both (a test of these bounds).

    Args:
        problem: of backward or fused.
        inputs: q, k, v, gout as numbers (bfloat16 widened), arrays of numpy or of a device.
        found: their gradients, from out and lse as the kernel has them.

    Returns:
        Where the arrays of `found` lie: on the device, if they do.
    """
    m, c, h = dims_of(problem), UNIT_ROUNDOFF[problem.dtype], HALF_LEAST[problem.dtype]
    real, lost = _of_arithmetic(problem, inputs, found), _of_rounding(problem, inputs, found)
    of_out = out_tolerances(problem, {**inputs, "v": np.array([_largest(inputs["v"])])})
    made = {"out": _as_expected(m, found.out, of_out, found.rows)}
    for name in real:
        stored = c * min(1.0, _largest(getattr(found, name)) + real[name] + lost[name]) + h
        allowed = (real[name] + stored, real[name] + lost[name] + stored)
        made[name] = _as_expected(m, getattr(found, name), allowed, found.rows)
    return made


def _largest(array: Any) -> float:
    """The largest |element|."""
    return float(abs(array).max())


def _of_arithmetic(problem: Problem, inputs: dict[str, Any], found: Gradients) -> dict[str, float]:
    """The largest errors that the arithmetic explains: float64's in float64, else float32's, results not rounded.

    Let E be the relative error of one weight P[i,j] (rounding.weight twice, since lse comes from scores too, e(n) for
    its sum, and u |lse| for storing lse). Sums are bounded by the Cauchy-Schwarz inequality: |sum of x y| <= |x| |y|
    with norms of the reference's own rows and columns.

    1. gv[j] sums P[i,j] gout[i] over i: its terms are wrong by E, its sum by e(n), of |P[:,j]| |gout[:,d]|.
    2. gP[i,j] is wrong by e(d) |gout| |v|. delta is the mean of gP under the weights, so weights that are wrong by E
       move it by at most 2 E times the sum over j of P |gP|, and its own sum by e(d) |gout| |out| more.
       GS = P (gP - delta) is then wrong by E |GS| + P H, with H the sum of those two.
    3. gq[i] sums GS[i,j] k[j] over j: wrong by (E + e(n)) |GS[i,:]| |k[:,d]| + H |P[i,:]| |k[:,d]|, all over sqrt(d);
       gk[j] likewise over i, with q.
    """
    m = dims_of(problem)
    r = rounding(problem, inputs)
    lse = norm(inputs["q"]) * norm(inputs["k"]) / math.sqrt(m.head_dim) + math.log(m.n)
    weight = 2 * r.weight + r.total * math.sqrt(m.sharing) + 2 * r.u * lse
    gout = norm(inputs["gout"])
    delta = 2 * weight * found.cotangents + r.product * gout * norm(found.out)
    height = r.product * gout * norm(inputs["v"]) + delta
    relative = weight + r.total * math.sqrt(m.sharing)
    scale = 1 / math.sqrt(m.head_dim)
    q, k, cotangent = (norm(inputs[name], axis=2) for name in ("q", "k", "gout"))
    shared = math.sqrt(m.sharing)  # a row of gk sums over the query rows of all heads that share it
    return {
        "gq": scale * k * (relative * found.scores[0] + height * found.weights[0]),
        "gk": scale * q * shared * (relative * found.scores[1] + height * found.weights[1]),
        "gv": cotangent * shared * relative * found.weights[1],
    }


def _of_rounding(problem: Problem, inputs: dict[str, Any], found: Gradients) -> dict[str, float]:
    """The largest errors that rounding P, GS and out to the storage of the problem adds.

    With c that storage's unit roundoff, h half its least subnormal number, L = DEVIATIONS. The errors of roundings are
    independent of each other (see `spread`), so a sum of x y whose x are rounded is wrong by no more than
    L c |x| max|y|; nor, whatever they are, by more than c |x| |y|: `sum_of` takes the lesser. Below the normal numbers
    each x is wrong by h.

    1. gv[j] sums P[i,j] gout[i] over i, P rounded.
    2. out rounded moves delta[i], the sum of gout[i] * out[i] over d, by L c |gout[i] * out[i]|.
    3. gq[i] sums GS[i,j] k[j] over j; GS is rounded, and was made of a rounded P: 2 c, and h of P times |gP - delta|
       beside h of GS. delta[i] times the sum of P[i,j] k[j]: that is at most |P[i,:]| |k[:,d]|, and max|k|. All over
       sqrt(d).
    4. gk[j] likewise over i, with q; but each i has a delta of its own: L c max|q| times the norm over i of
       P[i,j] |gout[i] * out[i]|.
    """
    m, c, h = dims_of(problem), UNIT_ROUNDOFF[problem.dtype], HALF_LEAST[problem.dtype]
    scale, gout = 1 / math.sqrt(m.head_dim), norm(inputs["gout"])
    tiny = spread(m.n * m.sharing, h) * (1 + gout * (norm(inputs["v"]) + norm(found.out)))
    most = {name: _largest(inputs[name]) for name in ("q", "k", "gout")}

    def sum_of(x: float, name: str, heads: int) -> float:
        """c times the norm of rounded x, with these inputs y of `heads` query heads."""
        return c * x * min(DEVIATIONS * most[name], norm(inputs[name], axis=2) * math.sqrt(heads))

    delta = DEVIATIONS * c * found.deltas[0] * min(most["k"], found.weights[0] * norm(inputs["k"], axis=2))
    deltas = DEVIATIONS * c * found.deltas[1] * most["q"]
    return {
        "gq": scale * (2 * sum_of(found.scores[0], "k", 1) + delta + tiny * most["k"]),
        "gk": scale * (2 * sum_of(found.scores[1], "q", m.sharing) + deltas + tiny * most["q"]),
        "gv": sum_of(found.weights[1], "gout", m.sharing) + tiny * most["gout"],
    }


def _as_expected(m: Dims, array: Any, tolerances: tuple[float, float], rows: Array | None) -> Expected:
    values, (tolerance, loose) = array.astype(np.float64, copy=False), tolerances
    if rows is None:
        return Expected(values, tolerance, cache_tolerance=loose)
    flattened = values.reshape(-1, values.shape[-1])
    return Expected(flattened, tolerance, flat(m, values.shape[1], rows), loose)


def by_differences(m: Dims, inputs: dict[str, Array], step: float = 1e-6) -> dict[str, Array]:
    """The gradients of sum(gout * out) by central differences in float64, element by element: for tiny n, in tests."""
    found = {}
    for name in ("q", "k", "v"):
        whole = {key: inputs[key].astype(np.float64) for key in ("q", "k", "v", "gout")}
        gradient = np.empty(whole[name].shape)
        for index in itertools.product(*map(range, gradient.shape)):
            kept = whole[name][index]
            sides = []
            for sign in (1, -1):
                whole[name][index] = kept + sign * step
                sides.append(float((whole["gout"] * forward(m, whole)[0]).sum()))
            whole[name][index] = kept
            gradient[index] = (sides[0] - sides[1]) / (2 * step)
        found[f"g{name}"] = gradient
    return found
