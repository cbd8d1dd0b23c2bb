"""The surrogate: a Gaussian process over the listed choices, small enough to refit every few trials.

Own numpy code, for two reasons: importing scikit-learn costs a command 0.9 s, and its regressor re-optimises some forty
length scales, where five (one a group of features) fit better from few trials and cost a hundredth of the time.

Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1, equation (4.17);
batches by hallucinated variance: Desautels, Krause and Burdick, JMLR 15 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.records import Choice

Array = np.ndarray[Any, Any]

CAP_QUANTILE = 0.75
"""Log times above this quantile count as this quantile: how bad the bad are must not shape the model of the good."""

CONFIDENCE = 1.5
"""Standard deviations below the mean at which a choice is judged (lower confidence bound)."""

_LENGTHS = tuple(2.0 ** (k / 2) for k in range(-3, 9))
_NOISES = (1e-4, 1e-3, 1e-2, 0.05, 0.2)
"""Noise variance over signal variance; first looks repeat within 2 to 15 %."""


class Features(NamedTuple):
    """Choices as points. `groups`: the columns of each group of features, each group with a length scale of its own."""

    matrix: Array
    groups: tuple[Array, ...]


def _one_hot(values: Sequence[object]) -> Array:
    """Columns for a name; two different names are at distance 1."""
    names = {name: i for i, name in enumerate(sorted(set(values), key=str))}
    rows: Array = np.eye(len(names))[[names[value] for value in values]] / math.sqrt(2)
    return rows


def _scaled(values: Sequence[float | None]) -> Array:
    """One column for a number, from 0 to 1 on the log2 axis where all are positive; an absent number lies aside."""
    known = [value for value in values if value is not None]
    log = bool(known) and min(known) >= 0 and max(known) > 4
    axis = [None if value is None else math.log2(value + 1) if log else float(value) for value in values]
    present = [value for value in axis if value is not None]
    low, span = (min(present), (max(present) - min(present)) or 1.0) if present else (0.0, 1.0)
    return np.array([[-0.5 if value is None else (value - low) / span] for value in axis])


def _numbers(values: Sequence[object]) -> list[float | None]:
    return [float(value) if isinstance(value, (int, float)) else None for value in values]


def features(choices: Sequence[Choice]) -> Features:
    """Feature groups: names of the build, its knobs, threads, placement, process part, and products with threads.

    Args:
        choices: the whole space; the scaling is over it.
    """
    builds = [choice.build for choice in choices]
    threads = [float(choice.team.threads) if choice.team else 1.0 for choice in choices]
    knob_names = sorted({name for build in builds for name, _ in build.knobs})
    knobs = [_numbers([dict(build.knobs).get(name) for build in builds]) for name in knob_names]
    products = [[None if v is None else v * t for v, t in zip(column, threads, strict=True)] for column in knobs]
    parts = [
        [_one_hot([(b.variant, b.compiler, b.flags) for b in builds]), _one_hot([b.variant for b in builds])],
        [_scaled(column) for column in knobs],
        [_scaled(threads)],
        [_one_hot([choice.team and choice.team.placement for choice in choices])],
        [_one_hot([choice.process for choice in choices])],
        [_scaled(column) for column in products],
    ]
    blocks = [np.hstack(part) for part in parts if part]
    ends = np.cumsum([block.shape[1] for block in blocks])
    groups = tuple(np.arange(end - block.shape[1], end) for block, end in zip(blocks, ends, strict=True))
    return Features(np.hstack(blocks), groups)


class Scales(NamedTuple):
    """Hyperparameters: one length a group, and noise variance over signal variance."""

    lengths: tuple[float, ...]
    noise: float


def distances(points: Features, rows: Sequence[int]) -> Array:
    """Squared distances between some choices, one layer a group: shape (groups, rows, rows)."""
    chosen = points.matrix[list(rows)]
    return np.stack([_squared(chosen[:, columns], chosen[:, columns]) for columns in points.groups])


def _squared(left: Array, right: Array) -> Array:
    gram = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    clipped: Array = np.maximum(gram, 0.0)
    return clipped


def _matern(squared: Array) -> Array:
    """Matern 5/2 of squared scaled distances; overwrites its argument."""
    squared *= 5.0
    r = np.sqrt(squared)
    squared /= 3.0
    squared += r
    squared += 1.0
    squared *= np.exp(-r)
    return squared


def _scaled_points(points: Features, scales: Scales) -> Array:
    """The points with each group's columns divided by its length: one matrix product gives all distances."""
    scale = np.ones(points.matrix.shape[1])
    for columns, length in zip(points.groups, scales.lengths, strict=True):
        scale[columns] = 1.0 / length
    return points.matrix * scale


class Model(NamedTuple):
    """A fitted process: rows seen, Cholesky factor, weights, signal variance, mean, scales."""

    rows: tuple[int, ...]
    factor: Array
    weights: Array
    variance: float
    mean: float
    scales: Scales


def _moves(scales: Scales, index: int) -> list[Scales]:
    """The scales with one hyperparameter a step or two away; the last index is the noise."""
    if index == len(scales.lengths):
        k = _NOISES.index(scales.noise)
        return [scales._replace(noise=value) for value in _NOISES[max(0, k - 1) : k + 2] if value != scales.noise]
    k = _LENGTHS.index(scales.lengths[index])
    steps = _LENGTHS[max(0, k - 2) : k] + _LENGTHS[k + 1 : k + 3]
    return [scales._replace(lengths=(*scales.lengths[:index], v, *scales.lengths[index + 1 :])) for v in steps]


def _solve(squared: Array, y: Array, scales: Scales) -> tuple[float, Array, float]:
    """(log likelihood at its best signal variance, Cholesky factor, that variance). Source: equation (2.30)."""
    kernel = _matern(np.tensordot(1.0 / np.array(scales.lengths) ** 2, squared, axes=1))
    kernel[np.diag_indices_from(kernel)] += scales.noise + 1e-8
    factor = np.linalg.cholesky(kernel)
    white = np.linalg.solve(factor, y)
    variance = max(float(white @ white) / len(y), 1e-8)
    return -0.5 * len(y) * math.log(variance) - float(np.log(np.diag(factor)).sum()), factor, variance


def fit(points: Features, rows: Sequence[int], y: Sequence[float], start: Scales | None = None) -> Model:
    """Fit to log times by sweeps of coordinate ascent on the likelihood, from the scales of the last fit.

    Args:
        points: of the whole space.
        rows: indices of the choices seen, at least one.
        y: their log times (or what is left of them after a prior), already capped.
        start: scales to start from; None: the middle, and a second sweep.
    """
    values = np.asarray(y, float)
    mean = float(values.mean())
    squared = distances(points, rows)
    scales = start or Scales((_LENGTHS[4],) * len(points.groups), 1e-2)
    best = _solve(squared, values - mean, scales)
    for index in [*range(len(scales.lengths) + 1)] * (1 if start else 2):
        for candidate in _moves(scales, index):
            found = _solve(squared, values - mean, candidate)
            if found[0] > best[0] + 1e-6:
                best, scales = found, candidate
    _, factor, variance = best
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, values - mean))
    return Model(tuple(rows), factor, weights, variance, mean, scales)


class Belief(NamedTuple):
    """What a model thinks of every choice: mean, standard deviation, and the whitened covariances to the rows seen."""

    mean: Array
    deviation: Array
    white: Array


def believe(points: Features, model: Model) -> Belief:
    """Posterior mean and standard deviation of the log time of every choice (without noise)."""
    scaled = _scaled_points(points, model.scales)
    cross = _matern(_squared(scaled[list(model.rows)], scaled))
    white = np.linalg.solve(model.factor, cross)
    share = np.maximum(1.0 - (white**2).sum(0), 1e-9)
    return Belief(model.mean + cross.T @ model.weights, np.sqrt(model.variance * share), white)


class Wanted(NamedTuple):
    """What a batch may hold.

    Attributes:
        free: of every choice, whether it may be picked.
        most: how many to pick at most.
        kinds: of every choice, the number of its build.
        known: builds that were compiled before.
        fresh: how many builds the batch may add; compiling one costs as much as dozens of looks.
    """

    free: Array
    most: int
    kinds: Array
    known: frozenset[int]
    fresh: int


def _allowed(wanted: Wanted, picked: Sequence[int]) -> Array:
    """Indices of what may still be picked: once enough new builds are in, only builds that are paid for."""
    free = wanted.free.copy()
    free[list(picked)] = False
    paid = {*wanted.known, *(int(wanted.kinds[index]) for index in picked)}
    if len(paid) - len(wanted.known) >= wanted.fresh:
        bought = np.zeros(int(wanted.kinds.max()) + 1, bool)
        bought[list(paid)] = True
        free &= bought[wanted.kinds]
    indices: Array = np.flatnonzero(free)
    return indices


def lowest(points: Features, model: Model, belief: Belief, prior: Array, wanted: Wanted) -> list[int]:
    """The choices with the lowest confidence bounds, each picked as if those before it had been measured.

    Args:
        points: of the whole space.
        model, belief: fitted, and what it believes.
        prior: added to the mean; zeros without a prior.
        wanted: what may be picked, and how many.
    """
    scaled = _scaled_points(points, model.scales)
    share, seen = belief.deviation**2 / model.variance, len(model.rows)
    white = np.vstack([belief.white, np.zeros((wanted.most, len(scaled)))])
    picked: list[int] = []
    for row in range(seen, seen + wanted.most):
        free = _allowed(wanted, picked)
        if not len(free):
            break
        bound = (prior + belief.mean - CONFIDENCE * np.sqrt(model.variance * share))[free]
        best = int(free[int(np.argmin(bound))])
        picked.append(best)
        own = _matern(_squared(scaled[[best]], scaled))[0] - white[:row, best] @ white[:row]
        white[row] = own / math.sqrt(share[best] + model.scales.noise)
        share = np.maximum(share - white[row] ** 2, 1e-9)
    return picked


def spread(points: Features, taken: Sequence[int], wanted: Wanted) -> list[int]:
    """A maximin design: choices each as far as can be from all taken before.

    The first one, when nothing is taken, is the choice nearest the middle.
    """
    matrix = points.matrix
    picked: list[int] = []
    near = np.full(len(matrix), np.inf)
    for index in taken:
        near = np.minimum(near, _squared(matrix, matrix[[index]])[:, 0])
    if not len(taken):
        near = -_squared(matrix, matrix.mean(0)[None, :])[:, 0]
    while len(picked) < wanted.most:
        free = _allowed(wanted, picked)
        if not len(free):
            break
        best = int(free[int(np.argmax(near[free]))])
        own = _squared(matrix, matrix[[best]])[:, 0]
        near = own if not len(taken) and not picked else np.minimum(near, own)
        picked.append(best)
    return picked
