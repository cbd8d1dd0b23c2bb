"""Statistics of samples: the summary of one choice, and the interval of a ratio between two.

The figure that ranks choices on a quiet machine is the 25th percentile: interference only ever adds time, so the mean
says more about the neighbours than about the choice, and the minimum rests on one sample.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.records import Summary

Array = np.ndarray[Any, Any]

QUANTILE = 25.0
"""Percentile that ranks. Source: docs/search.md, which estimator and why."""

RESAMPLES = 1000
"""Bootstrap resamples: the least for which a 1 % tail holds several of them."""

_GRID = 64
"""Points an interval of the numeric integration of the Beta density; 1e-5 of weight at 40 samples."""


class Interval(NamedTuple):
    """A log ratio: its estimate and the ends of its interval."""

    centre: float
    low: float
    high: float


@functools.cache
def quantile_weights(count: int, quantile: float = QUANTILE / 100) -> Array:
    """Weights of the sorted samples in the Harrell-Davis estimate of a quantile.

    Nearly the same number as one order statistic, with less noise, because its neighbours have a say: on recorded
    noise it found 5 % differences in 91 to 99 of 100 races where the order statistic found 77 to 99.

    Source: Harrell and Davis, "A new distribution-free quantile estimator", Biometrika 69 (1982), equation (1).
    """
    a, b = (count + 1) * quantile, (count + 1) * (1 - quantile)
    x = (np.arange(count * _GRID) + 0.5) / (count * _GRID)
    log_density = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x)
    mass = np.exp(log_density - log_density.max()).reshape(count, _GRID).sum(axis=1)
    weights: Array = mass / mass.sum()
    return weights


def resample(count: int, seed: int, resamples: int = RESAMPLES) -> Array:
    """Indices of bootstrap resamples, shape (resamples, count)."""
    return np.random.default_rng(seed).integers(0, count, (resamples, count))


def log_quantiles(samples: Array, indices: Array) -> Array:
    """Log of the Harrell-Davis 25th percentile of each resample. samples: shape (count,), positive."""
    logs: Array = np.log(np.sort(samples[indices], axis=1) @ quantile_weights(samples.shape[0]))
    return logs


def smooth_p25(samples_ns: Sequence[float]) -> float:
    """The Harrell-Davis 25th percentile in ns: what leads a race."""
    values = np.sort(np.asarray(samples_ns, float))
    return float(values @ quantile_weights(len(values)))


def log_ratio(a_ns: Sequence[float], b_ns: Sequence[float], alpha: float, seed: int) -> Interval:
    """The log of b's 25th percentile over a's, with a bootstrap interval.

    Rounds are resampled, not samples: sample i of both was taken in round i, so a drift that both shared cancels.

    Args:
        a_ns, b_ns: samples of the same rounds, equally many.
        alpha: share of resamples left outside, half at each end (0.05: a 95 % interval).
        seed: of the resampling.
    """
    a, b = np.asarray(a_ns, float), np.asarray(b_ns, float)
    indices = resample(len(a), seed)
    ratios = log_quantiles(b, indices) - log_quantiles(a, indices)
    low, high = np.quantile(ratios, [alpha / 2, 1 - alpha / 2])
    return Interval(math.log(smooth_p25(b_ns) / smooth_p25(a_ns)), float(low), float(high))


def excess(rows: Sequence[Sequence[float]], own: int, alpha: float, seed: int) -> Interval:
    """The log of one choice's 25th percentile over that of the best, the best not picked by what it is timed with.

    The lowest of several noisy figures is too low, so whoever is compared with it looks too slow. Here the best is
    picked on one half of the rounds and timed on the other, both ways round, and the two are averaged (cross-fitting).

    Args:
        rows: samples of each choice in ns, of the same rounds, at least four rounds.
        own: index of the choice that is judged.
        alpha: share of resamples left outside, half at each end.
        seed: of the resampling.
    """
    values = np.asarray(rows, float)
    halves = values[:, ::2], values[:, 1::2]
    drawn = []
    for i, half in enumerate(halves):
        indices = resample(half.shape[1], seed + i)
        logs = np.stack([log_quantiles(row, indices) for row in half])
        exact = np.log(np.sort(half, axis=1) @ quantile_weights(half.shape[1]))
        drawn.append(np.concatenate([exact[:, None], logs], axis=1))
    ratios = np.mean([_over_best(drawn[i], drawn[1 - i], own) for i in (0, 1)], axis=0)
    low, high = np.quantile(ratios[1:], [alpha / 2, 1 - alpha / 2])
    return Interval(float(ratios[0]), float(low), float(high))


def point_excess(rows: Sequence[Sequence[float]], own: int) -> float:
    """The estimate of `excess` alone, without an interval."""
    values = np.asarray(rows, float)
    halves = [
        np.log(np.sort(half, axis=1) @ quantile_weights(half.shape[1])) for half in (values[:, ::2], values[:, 1::2])
    ]
    return float(np.mean([halves[1 - i][own] - halves[1 - i][halves[i].argmin()] for i in (0, 1)]))


def _over_best(picking: Array, timing: Array, own: int) -> Array:
    """Log ratio of `own` over the row that is lowest in `picking`, both as in `timing`; shapes (choices, resamples)."""
    best = picking.argmin(axis=0)
    found: Array = timing[own] - timing[best, np.arange(timing.shape[1])]
    return found


def summary(samples_ns: Sequence[float], seed: int = 0) -> Summary:
    """The figures of one choice's samples, with a bootstrap 95 % interval of the 25th percentile.

    Args:
        samples_ns: at least one sample, each the mean time of one call.
        seed: of the resampling, so that a table made twice from a log is the same table.
    """
    values = np.asarray(samples_ns, float)
    p25, median, p99 = np.percentile(values, [QUANTILE, 50, 99])
    drawn = np.percentile(values[resample(len(values), seed)], QUANTILE, axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Summary(float(p25), float(median), float(values.mean()), float(p99), (float(low), float(high)), len(values))


def p25(samples_ns: Sequence[float]) -> float:
    """The 25th percentile in ns."""
    return float(np.percentile(np.asarray(samples_ns, float), QUANTILE))
