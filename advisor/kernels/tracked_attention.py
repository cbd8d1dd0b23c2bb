"""Attention of inputs that are wrong already, and its gradients, with their errors: see tracked.py and attention.py.

A weight is wrong by the error of its score, as a relative error; of a row, the largest counts. Sums over weights add
such errors as squares, each times what it meets: k, v and cotangents are without a mean, and GS of a row adds up to 0.
What a row has in common, its total and its delta, is added up with the sum that it moves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from advisor.kernels.attention import spread
from advisor.kernels.rms import AS_COMPUTED, Kept, apart
from advisor.kernels.spec import Array
from advisor.kernels.tracked import Tracked, both, summed, times


class Weights(NamedTuple):
    """Softmax weights of some query rows [rows,n], the relative error of each row's before they are divided by their
    total, and of that total [rows,1], and its logarithm lse [rows,1].
    """

    p: Array
    relative: Array
    lse: Array


class Cache(NamedTuple):
    """One head of k and v: [n,e] each."""

    k: Tracked
    v: Tracked
    causal: bool


class Gradients(NamedTuple):
    """What some query rows of one head contribute: gq [rows,e]; gk, gv [n,e] to be summed over rows and heads."""

    gq: Tracked
    gk: Tracked
    gv: Tracked


def _dot_error(a: Tracked, b: Tracked, u: float) -> Array:
    """The largest error of a row of a times any row of b: [rows,1]."""
    rounded, most = spread(a.value.shape[1] + 2, u), np.square(b.value).max(axis=0)
    squares = (np.square(a.error) + np.square(rounded * a.value)) @ most
    squares += np.square(a.value) @ np.square(b.error).max(axis=0)
    found: Array = (np.sqrt(squares) + rounded * np.abs(a.value @ b.value.T).max(axis=1))[:, None]
    return found


def weigh(q: Tracked, rows: Array, cache: Cache, u: float) -> Weights:
    """The weights of query rows `rows` [rows] of a sequence, q [rows,e]. A weight is wrong by its score's error and 5 u
    of the exponential; so is their total, and by e(n) of its sum.
    """
    scale = 1 / math.sqrt(q.value.shape[1])
    scores = scale * (q.value @ cache.k.value.T)
    if cache.causal:
        places = np.ones_like(scores[0]).cumsum() - 1  # 0 .. n-1, on the device that has the scores
        scores = np.where(places > rows[:, None], -np.inf, scores)
    most = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - most)
    total = p.sum(axis=1, keepdims=True)
    relative = scale * _dot_error(q, cache.k, u) + 5 * u + spread(len(cache.k.value), u)
    return Weights(p / total, relative, most + np.log(total))


def attended(weights: Weights, v: Tracked, u: float, way: Kept = AS_COMPUTED) -> Tracked:
    """Weighted sums of rows of v. Weights may be stored before they are divided by their total, the largest as 1: what
    moves one below the normal numbers is then at most as much of the total.
    """
    found = both(Tracked(weights.p, apart(weights.relative * weights.p, way.moved(weights.p))), v, u)
    return Tracked(found.value, found.error + (weights.relative + u) * np.abs(found.value))


def gradients(q: Tracked, rows: Array, cache: Cache, out: Tracked, gout: Tracked, u: float) -> Gradients:
    """The gradients of one head for query rows `rows`; q, out, gout [rows,e].

    GS = P (gP - delta) is wrong by P's relative error of itself, and by P times the errors of gP and delta. Weights
    made from a stored lse are wrong by 2 u |lse| more.
    """
    k, v = cache.k, cache.v
    found, scale = weigh(q, rows, cache, u), 1 / math.sqrt(q.value.shape[1])
    relative = 2 * found.relative + 2 * u * np.abs(found.lse)
    delta = summed(times(gout, out, u), 1, u)
    gs = found.p * (gout.value @ v.value.T - delta.value)
    height = _dot_error(gout, v, u) + delta.error
    wrong = Tracked(gs, (relative + 3 * u) * np.abs(gs) + height * found.p)
    weights = Tracked(found.p, relative * found.p)
    gq, gk, gv = both(wrong, k, u), both(wrong.T, q, u), both(weights.T, gout, u)
    common = relative * np.abs(gq.value) + delta.error * np.abs(found.p @ k.value)
    return Gradients(_scaled(Tracked(gq.value, gq.error + common), scale), _scaled(gk, scale), gv)


def _scaled(a: Tracked, factor: float) -> Tracked:
    return Tracked(factor * a.value, factor * a.error)
