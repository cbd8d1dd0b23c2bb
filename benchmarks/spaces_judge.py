"""Scores and verdicts of benchmarks/spaces.py: figures from curves, words from figures; nothing is run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

RESAMPLES = 2000
"""Bootstrap resamples of an interval."""


class Done(NamedTuple):
    """One search: best so far over the optimum and cost in seconds after each evaluation, and its own time.

    Attributes:
        strategy: who searched.
        space: KERNEL-DEVICE.
        kernel: whose space it is.
        seed: of the search and of the noise.
        ratio: [evaluations].
        cost_s: at the end: compile, overhead and runs of everything evaluated.
        own_ms: CPU time of the search itself, an evaluation.
    """

    strategy: str
    space: str
    kernel: str
    seed: int
    ratio: tuple[float, ...]
    cost_s: float
    own_ms: float


class Score(NamedTuple):
    """Geometric mean over spaces of the mean ratio over seeds, with a bootstrap 95 % interval over seeds."""

    value: float
    low: float
    high: float


class Against(NamedTuple):
    """Ours over a peer's score at one budget, below 1 is better; `verdict`: ahead, behind, or a tie."""

    peer: str
    budget: int
    ratio: Score
    verdict: str


class Broken(NamedTuple):
    """A search that ended in an error, which says nothing about how good it is."""

    strategy: str
    space: str
    reason: str


Curves = Mapping[str, Mapping[str, Array]]
"""Strategy -> space -> [seeds, evaluations]; seeds in ascending order, the same for all of a space."""


def curves(done: Sequence[Done]) -> Curves:
    """The searches of every strategy on every space, for the seeds and spaces that all strategies finished."""
    found: dict[str, dict[str, dict[int, tuple[float, ...]]]] = {}
    for one in done:
        found.setdefault(one.strategy, {}).setdefault(one.space, {})[one.seed] = one.ratio
    spaces = sorted(set.intersection(*(set(by_space) for by_space in found.values()))) if found else []
    table: dict[str, dict[str, Array]] = {strategy: {} for strategy in found}
    for space in spaces:
        seeds = sorted(set.intersection(*(set(by_space[space]) for by_space in found.values())))
        for strategy in found if seeds else ():
            table[strategy][space] = np.array([found[strategy][space][seed] for seed in seeds])
    return table


def mean_at(curve: Array, budget: int) -> float:
    """Mean over seeds after so many evaluations."""
    return float(curve[:, budget - 1].mean())


def score(table: Mapping[str, Array], budget: int, seed: int = 0) -> Score:
    """One strategy's score over the spaces of a table."""
    drawn = _resampled(table, budget, seed)
    return Score(float(np.exp(_log_score(table, budget))), *_interval(drawn))


def against(ours: Mapping[str, Array], theirs: Mapping[str, Array], peer: str, budget: int) -> Against:
    """Ours beside a peer: both resampled by the same seeds of the same spaces."""
    value = float(np.exp(_log_score(ours, budget) - _log_score(theirs, budget)))
    low, high = _interval(_resampled(ours, budget, 0) - _resampled(theirs, budget, 0))
    verdict = "ahead" if high < 1 else "behind" if low > 1 else "tie"
    return Against(peer, budget, Score(value, low, high), verdict)


def _log_score(table: Mapping[str, Array], budget: int) -> float:
    return float(np.mean([np.log(mean_at(curve, budget)) for curve in table.values()]))


def _resampled(table: Mapping[str, Array], budget: int, seed: int) -> Array:
    """Log scores of resampled seeds, drawn apart for each space."""
    chance = np.random.default_rng(seed)
    total = np.zeros(RESAMPLES)
    for space in sorted(table):
        values = table[space][:, budget - 1]
        picked = values[chance.integers(len(values), size=(RESAMPLES, len(values)))]
        total += np.log(picked.mean(axis=1))
    return total / len(table)


def _interval(logs: Array) -> tuple[float, float]:
    low, high = np.exp(np.quantile(logs, (0.025, 0.975)))
    return float(low), float(high)
