"""Gradients of attention in float64, all rows or chosen ones, with the tolerances that rounding explains.

The formulas and the letters are those of attention.py.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from advisor.errors import BadInput
from advisor.kernels.attention import (
    Dims,
    Head,
    attend,
    blocks,
    dims_of,
    flat,
    forward,
    heads_of,
    in_parallel,
    norm,
    out_tolerance,
    rounding,
    sampled,
)
from advisor.kernels.spec import Array, Expected
from advisor.records import Problem


class Piece(NamedTuple):
    """What some query rows of one head contribute. gq [rows,d]; gk, gv [n,d] to be summed over rows.

    `columns` [2,n]: sums of squares of the columns of P and GS; `sizes`: the largest norms of rows of P and GS, and the
    largest sum over j of P |gP|.
    """

    gq: Array
    gk: Array
    gv: Array
    out: Array
    columns: Array
    sizes: tuple[float, float, float]


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
    """

    gq: Array
    gk: Array
    gv: Array
    out: Array
    rows: Array | None
    weights: tuple[float, float]
    scores: tuple[float, float]
    cotangents: float


def _cotangent(head: Head) -> Array:
    if head.gout is None:
        raise BadInput("gradients need a cotangent", got="no gout among the inputs")
    return head.gout


def _piece(head: Head, rows: Array) -> Piece:
    found = attend(head, rows)
    gout, scale = _cotangent(head)[rows], 1 / math.sqrt(head.q.shape[1])
    product = gout @ head.v.T
    cotangents = float((found.weights * np.abs(product)).sum(axis=1).max())
    product -= (gout * found.out).sum(axis=1, keepdims=True)
    product *= found.weights  # GS
    columns = np.stack([np.square(found.weights).sum(axis=0), np.square(product).sum(axis=0)])
    return Piece(
        gq=scale * (product @ head.k),
        gk=scale * (product.T @ head.q[rows]),
        gv=found.weights.T @ gout,
        out=found.out,
        columns=columns,
        sizes=(norm(found.weights), norm(product), cotangents),
    )


def all_rows(m: Dims, inputs: dict[str, Array]) -> Gradients:
    """The gradients of every row."""
    gq, gk, gv = (np.zeros((m.batch, heads, m.n, m.head_dim)) for heads in (m.heads, m.kv_heads, m.kv_heads))
    out = np.empty_like(gq)
    columns = np.zeros((m.batch, m.kv_heads, 2, m.n))
    sizes = np.zeros(3)
    for b, h, head in heads_of(m, inputs):
        g = h // m.sharing
        pieces = in_parallel(functools.partial(_piece, head), blocks(m.n))
        for rows, piece in zip(blocks(m.n), pieces, strict=True):
            gq[b, h, rows], out[b, h, rows] = piece.gq, piece.out
            gk[b, g] += piece.gk
            gv[b, g] += piece.gv
            columns[b, g] += piece.columns
            sizes = np.maximum(sizes, piece.sizes)
    of_weights, of_scores = np.sqrt(columns.max(axis=(0, 1, 3))).tolist()
    row_weights, row_scores, cotangents = sizes.tolist()
    return Gradients(gq, gk, gv, out, None, (row_weights, of_weights), (row_scores, of_scores), cotangents)


def some_rows(m: Dims, inputs: dict[str, Array], known: tuple[Array, Array]) -> Gradients:
    """The gradients of chosen rows of every head: a whole reference would take too long.

    Args:
        m: the problem.
        inputs: as for the kernel.
        known: out [b,h,n,d] and lse [b,h,n] of all rows; rows of gk and gv need the weights of every query row.
    """
    rows = sampled(m)
    gq, out = (np.zeros((m.batch, m.heads, len(rows), m.head_dim)) for _ in range(2))
    gk, gv = (np.zeros((m.batch, m.kv_heads, len(rows), m.head_dim)) for _ in range(2))
    columns, sizes = np.zeros((m.batch, m.kv_heads, 2, len(rows))), np.zeros(3)
    for b, h, head in heads_of(m, inputs):
        g = h // m.sharing
        piece = _piece(head, rows)
        gq[b, h], out[b, h] = piece.gq, piece.out
        sizes = np.maximum(sizes, piece.sizes)
        key_gradient, value_gradient, squares = _columns(head, rows, known[0][b, h], known[1][b, h])
        gk[b, g] += key_gradient
        gv[b, g] += value_gradient
        columns[b, g] += squares
    of_weights, of_scores = np.sqrt(columns.max(axis=(0, 1, 3))).tolist()
    row_weights, row_scores, cotangents = sizes.tolist()
    return Gradients(gq, gk, gv, out, rows, (row_weights, of_weights), (row_scores, of_scores), cotangents)


def _columns(head: Head, rows: Array, out: Array, lse: Array) -> tuple[Array, Array, Array]:
    """Rows j of gk and gv of one head, and sums of squares of the columns j of P and GS."""
    gout, scale = _cotangent(head), 1 / math.sqrt(head.q.shape[1])
    scores = scale * (head.q @ head.k[rows].T) - lse.astype(np.float64)[:, None]
    if head.causal:
        scores[rows > np.arange(len(head.q))[:, None]] = -np.inf
    weights = np.exp(scores)
    delta = (gout * out.astype(np.float64)).sum(axis=1, keepdims=True)
    gs = weights * (gout @ head.v[rows].T - delta)
    squares = np.stack([np.square(weights).sum(axis=0), np.square(gs).sum(axis=0)])
    return scale * (gs.T @ head.q), weights.T @ gout, squares


def expected(problem: Problem, inputs: dict[str, Array], found: Gradients) -> dict[str, Expected]:
    """gq, gk, gv and out with their tolerances.

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
    m, r = dims_of(problem), rounding(problem, inputs)
    lse = norm(inputs["q"]) * norm(inputs["k"]) / math.sqrt(m.head_dim) + math.log(m.n)
    weight = 2 * r.weight + r.total * math.sqrt(m.sharing) + 2 * r.u * lse
    gout = norm(inputs["gout"])
    delta = 2 * weight * found.cotangents + r.product * gout * norm(found.out)
    height = r.product * gout * norm(inputs["v"]) + delta
    relative = weight + r.total * math.sqrt(m.sharing)
    scale = 1 / math.sqrt(m.head_dim)
    q, k, cotangent = (norm(inputs[name], axis=2) for name in ("q", "k", "gout"))
    shared = math.sqrt(m.sharing)  # a row of gk sums over the query rows of all heads that share it
    tolerances = {
        "gq": scale * k * (relative * found.scores[0] + height * found.weights[0]),
        "gk": scale * q * shared * (relative * found.scores[1] + height * found.weights[1]),
        "gv": cotangent * shared * relative * found.weights[1],
        "out": out_tolerance(r, inputs["v"]),
    }
    values = {"gq": found.gq, "gk": found.gk, "gv": found.gv, "out": found.out}
    return {name: _as_expected(m, value, tolerances[name] + r.u, found.rows) for name, value in values.items()}


def _as_expected(m: Dims, values: Array, tolerance: float, rows: Array | None) -> Expected:
    if rows is None:
        return Expected(values, tolerance)
    heads = values.shape[1]
    return Expected(values.reshape(-1, values.shape[-1]), tolerance, flat(m, heads, rows))


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
