"""The surrogate: a Gaussian process over a list of configurations, small enough to follow every trial.

Own numpy code, for two reasons: importing scikit-learn costs a command 0.9 s, and its regressor optimises length scales
by maximum likelihood alone, where from ten trials only a prior on them keeps dozens of scales sensible.

Scales are refitted rarely. In between, a trial adds one row to the Cholesky factor and to the whitened covariances
with the whole list, so what the process believes everywhere costs one product of that matrix with a vector.

Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1, (4.17), (5.9);
Rprop: Igel and Huesken, Neurocomputing 50 (2003); a prior on the scales of many columns: Hvarfner et al., ICML 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advisor.search.features import DERIVED, ELSEWHERE, OWN, Array, Features

PRIOR_WEIGHT = {OWN: -2.5, DERIVED: -4.5, ELSEWHERE: -1.0}
"""Log of the weight of a column group in squared distance, before anything is seen: parameters count more than what
was derived from them, and times on other machines the most. With -6 for what is derived, convolution was far worse."""

WEIGHT_SPREAD = 1.5
"""Standard deviation of that log weight; with 1 or 2.5 convolution was worse."""

PRIOR_NOISE, NOISE_SPREAD = math.log(1e-3), 1.5
"""Log of noise variance over signal variance, and its standard deviation."""

VARIANCE_COUNT, VARIANCE_SUM = 2.0, 0.1
"""Signal variance as if two values with this sum of squares had been seen; the values are standardised."""

FIRST_STEPS, STEPS = 30, 10
"""Rprop steps of the first fit, and of those that start from the scales before."""

JITTER = 1e-6
ROOM = 64
"""Rows that are made room for."""

_ROOT5 = math.sqrt(5.0)


class Scales(NamedTuple):
    """Hyperparameters, as logs: weight of each column group, and noise variance over signal variance."""

    weights: Array
    noise: float


class Belief(NamedTuple):
    """Mean and standard deviation (without noise) of every configuration."""

    mean: Array
    deviation: Array


def middle(points: Features) -> Scales:
    """The scales before anything is seen."""
    return Scales(np.array([PRIOR_WEIGHT[kind] for kind in points.kinds]), PRIOR_NOISE)


def _squared(left: Array, right: Array) -> Array:
    gram = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    clipped: Array = np.maximum(gram, 0.0)
    return clipped


def _matern(squared: Array) -> Array:
    """Matern 5/2 of squared scaled distances."""
    r = np.sqrt(5.0 * squared)
    kernel: Array = (1.0 + r + r * r / 3.0) * np.exp(-r)
    return kernel


# --- scales ---


def _loss(points: Features, rows: Sequence[int], y: Array, theta: Array) -> tuple[float, Array]:
    """Minus log posterior of the scales `theta` (weights, then noise) and its gradient; mean and variance profiled.

    The gradient of all weights is three matrix products: sum_ab H_ab (x_a - x_b)^2 = 2 (x^2 . H1 - x . Hx).
    """
    n, own = len(y), points.matrix[list(rows)]
    weight = np.exp(theta[:-1])[points.group]
    scaled = own * np.sqrt(weight)
    r = _ROOT5 * np.sqrt(_squared(scaled, scaled))
    decay = np.exp(-r)
    kernel = (1.0 + r + r * r / 3.0) * decay
    kernel.flat[:: n + 1] = 1.0 + math.exp(theta[-1]) + JITTER
    factor, inverse = np.linalg.cholesky(kernel), np.linalg.inv(kernel)
    left = y - (inverse.sum(0) @ y) / inverse.sum()
    alpha = inverse @ left
    variance = (left @ alpha + VARIANCE_SUM) / (n + VARIANCE_COUNT)
    off = np.append((theta[:-1] - middle(points).weights) / WEIGHT_SPREAD, (theta[-1] - PRIOR_NOISE) / NOISE_SPREAD)
    loss = 0.5 * (n + VARIANCE_COUNT) * math.log(variance) + np.log(np.diag(factor)).sum() + 0.5 * (off @ off)
    outer = np.outer(alpha, alpha) / variance - inverse
    slope = outer * (-5.0 / 6.0) * (1.0 + r) * decay
    by_column = 2.0 * weight * (slope.sum(1) @ own**2 - (own * (slope @ own)).sum(0))
    gradient = np.append(
        -0.5 * np.bincount(points.group, by_column, len(points.kinds)), -0.5 * np.trace(outer) * math.exp(theta[-1])
    )
    gradient[:-1] += off[:-1] / WEIGHT_SPREAD
    gradient[-1] += off[-1] / NOISE_SPREAD
    return float(loss), gradient


def fit(points: Features, rows: Sequence[int], y: Array, start: Scales | None = None) -> Scales:
    """The scales that best explain standardised values, found by Rprop from those of the last fit.

    Args:
        points: of the whole list.
        rows: indices seen, at least one.
        y: their values, mean 0 and variance 1 or so.
        start: scales of the last fit, None: the prior's middle, and more steps.
    """
    first = start or middle(points)
    theta = np.append(first.weights, first.noise)
    step, before = np.full(len(theta), 0.3), np.zeros(len(theta))
    best, least = theta, math.inf
    for _ in range(STEPS if start else FIRST_STEPS):
        loss, gradient = _loss(points, rows, y, theta)
        if loss < least:
            best, least = theta, loss
        turned = gradient * before
        step = np.where(
            turned > 0, np.minimum(step * 1.3, 1.0), np.where(turned < 0, np.maximum(step * 0.5, 0.02), step)
        )
        gradient = np.where(turned < 0, 0.0, gradient)
        theta = np.clip(theta - np.sign(gradient) * step, -12.0, 4.0)
        theta[-1] = min(max(theta[-1], -9.0), 0.0)
        before = gradient
    return Scales(best[:-1], float(best[-1]))


# --- the process ---


class Process:
    """What is believed of the whole list, with fixed scales; rows are added one by one and can be taken back.

    What has a number for each row and configuration is in single precision: half the time, and noise is at least 1e-4.

    Args:
        points: of the whole list.
        scales: hyperparameters.
        rows: indices seen, in a fixed order.
    """

    def __init__(self, points: Features, scales: Scales, rows: Sequence[int]) -> None:
        scaled = points.matrix * np.sqrt(np.exp(scales.weights))[points.group]
        self._scaled = scaled.astype(np.float32)
        self._squares = (self._scaled**2).sum(1)
        self._noise = math.exp(scales.noise) + JITTER
        self.rows = list(rows)
        n, seen = len(rows), scaled[self.rows]
        kernel = _matern(_squared(seen, seen))
        kernel.flat[:: n + 1] = 1.0 + self._noise
        self._inverse = np.zeros((n + ROOM, n + ROOM))
        self._inverse[:n, :n] = np.linalg.inv(np.linalg.cholesky(kernel))
        self._white = np.empty((n + ROOM, len(scaled)), np.float32)
        self._white[:n] = self._inverse[:n, :n].astype(np.float32) @ self._covariance(self.rows)
        self._share = 1.0 - np.einsum("ij,ij->j", self._white[:n], self._white[:n])

    def _covariance(self, rows: Sequence[int]) -> Array:
        """Of some rows with the whole list, over the signal variance [rows, configurations]."""
        seen = self._scaled[list(rows)]
        gram = self._squares[list(rows)][:, None] + self._squares - 2.0 * (seen @ self._scaled.T)
        return _matern(np.maximum(gram, 0.0))

    def add(self, index: int) -> None:
        """See one more configuration."""
        n = len(self.rows)
        if n == len(self._inverse):
            self._grow()
        whitened = self._white[:n, index].copy()
        pivot = math.sqrt(max(float(self._share[index]), 1e-9) + self._noise)
        self._white[n] = (self._covariance([index])[0] - whitened @ self._white[:n]) / np.float32(pivot)
        self._inverse[n, :n], self._inverse[n, n] = -(whitened @ self._inverse[:n, :n]) / pivot, 1.0 / pivot
        self._share = self._share - self._white[n] ** 2
        self.rows.append(index)

    def without(self, count: int) -> None:
        """Take back the last rows that were added."""
        for _ in range(count):
            self.rows.pop()
            self._share = self._share + self._white[len(self.rows)] ** 2

    def _grow(self) -> None:
        n = len(self._inverse)
        self._inverse = np.pad(self._inverse, ((0, n), (0, n)))
        self._white = np.vstack([self._white, np.empty_like(self._white)])

    def believe(self, y: Array) -> Belief:
        """Mean and deviation everywhere, given the values of the rows in their order."""
        n = len(self.rows)
        solved = self._inverse[:n, :n] @ np.stack([y, np.ones(n)], 1)
        mean = float(solved[:, 1] @ solved[:, 0]) / float(solved[:, 1] @ solved[:, 1])
        left = solved[:, 0] - mean * solved[:, 1]
        variance = (float(left @ left) + VARIANCE_SUM) / (n + VARIANCE_COUNT)
        return Belief(
            mean + (left.astype(np.float32) @ self._white[:n]).astype(float),
            np.sqrt(variance * np.maximum(self._share.astype(float), 1e-9)),
        )


def improvement(belief: Belief, best: float) -> Array:
    """Expected improvement below `best`.

    Source: Jones, Schonlau and Welch, J. Global Optimization 13 (1998), equation (15); the normal distribution by
    Abramowitz and Stegun 26.2.17 (error below 7.5e-8).
    """
    u = (best - belief.mean) / belief.deviation
    density = np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
    t = 1.0 / (1.0 + 0.2316419 * np.abs(u))
    coefficients = (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530)
    tail = np.zeros_like(t)
    for coefficient in coefficients:
        tail = (tail + coefficient) * t
    below = np.where(u < 0, density * tail, 1.0 - density * tail)
    expected: Array = belief.deviation * np.maximum(u * below + density, 0.0)
    return expected
