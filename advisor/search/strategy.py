"""The search strategy: which of a list of configurations to measure next, whatever they configure.

A few points far apart, then always the configuration with the highest expected improvement under a Gaussian process
over the whole list. A configuration is proposed once; one that failed is told as failed, and for the model it is as
slow as the worst that matters. What is proposed depends on the seed and on what was told before, in its order, alone.

Replays of recorded spaces (`ask`, `tell`) and live tuning (`propose` a batch, by `ListSampler`) run this one class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.errors import BadInput
from advisor.search.features import ELSEWHERE, Array, Features, features, with_columns
from advisor.search.portfolio import PORTFOLIO, Others, levels, logs_of, portfolio, unlike
from advisor.search.surrogate import Belief, Process, Scales, fit, improvement

START_POINTS = 8
"""Points far apart before the first fit; what recorded spaces of other kernels favoured."""

POOL = 400
"""Configurations drawn at random that the first points are chosen from."""

CAP_QUANTILE = 0.75
"""Log times above this quantile count as this quantile: how bad the bad are must not shape the model of the good."""

REFIT, REFIT_LEAST = 1.3, 2
"""Scales are fitted again when there are this many times as many trials, and at least two more."""

LEAST_SCALE = 1e-4
"""Standard deviation of log times under which they count as equal."""

OTHERS_CAP = 0.5
"""Quantile of another machine's log slowdowns beyond which they count as this."""


class Builds(NamedTuple):
    """Builds of configurations: `kinds`: the number of each one's; `fresh`: how many new ones a batch may add."""

    kinds: Array
    fresh: int


class _Targets(NamedTuple):
    """What the process is told: y = (log time - expected - shift) / scale, of `rows` in their order."""

    rows: list[int]
    y: Array
    expected: Array
    shift: float
    scale: float


class Strategy:
    """Proposes each configuration of a list at most once.

    Args:
        configurations: name -> value, in a fixed order; positions in it are what is asked and told.
        seed: of the first points and of ties.
        expected: log time of every configuration as a neighbouring problem tells, up to a constant; or None.
        others: log of time over the best on other machines [machines, configurations], see `elsewhere_log`; with
            weights where it is known how near they are (`portfolio.weighed`); or None.
        builds: what a batch may add in builds; None: everything is ready to run.
        start_points: points before the first fit; None: 8, and half of that where times are expected.
    """

    def __init__(
        self,
        configurations: Sequence[Mapping[str, Any]],
        *,
        seed: int = 0,
        expected: Array | None = None,
        others: Array | Others | None = None,
        builds: Builds | None = None,
        start_points: int | None = None,
    ) -> None:
        self._count, self._seed = len(configurations), seed
        self._expected = np.zeros(self._count) if expected is None else expected
        self._prior = others
        self._others = logs_of(others) if others is not None and len(logs_of(others)) else None
        self.points = _points(configurations, self._others)
        self._levels = levels(configurations) if self._others is not None else None
        self._builds = builds or Builds(np.zeros(self._count, int), self._count)
        informed = PORTFOLIO if self._others is not None else START_POINTS // (1 if expected is None else 2)
        self.start_points = informed if start_points is None else start_points
        self.told: dict[int, float | None] = {}
        self._queue: list[int] | None = None
        self._scales: Scales | None = None
        self._fit_at = 0
        self._process: Process | None = None

    # --- asking and telling ---

    def ask(self) -> int | None:
        """The configuration to measure next, None when nothing is left."""
        found = self.propose(1)
        return found[0] if found else None

    def tell(self, index: int, value: float | None) -> None:
        """The time of a configuration in any unit, None for a failure."""
        self.told[index] = _log(value)

    def propose(self, count: int, running: Sequence[int] = ()) -> list[int]:
        """What to measure next, at most `count`, each chosen as if those before it had the time expected of them.

        The first points are all proposed before a model is asked.

        Args:
            count: how many at most.
            running: what was proposed or is measured for another reason, and was not told yet.
        """
        if self.points is None:
            return []
        free = np.ones(self._count, bool)
        free[[*self.told, *running]] = False
        if self._queue is None or self._misled():
            self._queue = self._start(free, self.start_points if self._queue is None else count)
        ready = [index for index in self._queue if free[index]][:count]
        self._queue = [index for index in self._queue if free[index] and index not in ready]
        if ready:
            return ready
        targets = self._targets(self.told)
        return self._start(free, count) if targets is None else self._best(targets, free, count)

    def current(self) -> Belief | None:
        """Expected log time and its standard deviation of every configuration, as the next proposal sees them.

        None before a success.
        """
        targets = self._targets(self.told)
        return None if targets is None else _in_logs(self._follow(targets).believe(targets.y), targets)

    def belief_with(self, told: Mapping[int, float | None]) -> Belief | None:
        """The same had these times been told instead (None: a failure); changes nothing of what is proposed."""
        targets = self._targets({index: _log(value) for index, value in told.items()})
        if targets is None or self.points is None:
            return None
        scales = fit(self.points, targets.rows, targets.y, self._scales)
        return _in_logs(Process(self.points, scales, targets.rows).believe(targets.y), targets)

    # --- the first points ---

    def _start(self, free: Array, count: int) -> list[int]:
        """The portfolio where other machines are known, else points far apart and from what was told."""
        if self.points is None or self._prior is None or self._others is None or self._levels is None:
            return self._spread(free, count)
        if self._misled():
            return unlike(self._others, self.points.own, free, list(self.told), count)
        return portfolio(self._prior, self._levels, free, count)

    def _misled(self) -> bool:
        """Whether all that was tried because of other machines failed here."""
        return self._others is not None and bool(self.told) and all(value is None for value in self.told.values())

    def _spread(self, free: Array, count: int) -> list[int]:
        """A maximin design over a random pool; the first one, when nothing was told, is nearest the middle."""
        if self.points is None:
            return []
        own = self.points.own if self.points.own.shape[1] else self.points.matrix
        listed = np.flatnonzero(free)
        pool = np.random.default_rng([self._seed, len(self.told)]).permutation(listed)[:POOL]
        near = np.full(len(pool), math.inf)
        for index in self.told:
            near = np.minimum(near, ((own[pool] - own[index]) ** 2).sum(1))
        if not self.told:
            near = -((own[pool] - own.mean(0)) ** 2).sum(1)
        picked: list[int] = []
        while len(picked) < min(count, len(pool)):
            allowed = self._affordable(pool, picked)
            allowed &= ~np.isin(pool, picked)
            if not allowed.any():
                break
            best = int(pool[int(np.argmax(np.where(allowed, near, -math.inf)))])
            gap = ((own[pool] - own[best]) ** 2).sum(1)
            near = gap if not self.told and not picked else np.minimum(near, gap)
            picked.append(best)
        return picked

    def _affordable(self, rows: Array, picked: Sequence[int]) -> Array:
        """Of some configurations, which may be added to a batch: once enough new builds are in, those paid for."""
        kinds = self._builds.kinds
        known = {int(kinds[index]) for index in self.told}
        paid = {*known, *(int(kinds[index]) for index in picked)}
        if not known or len(paid) - len(known) < self._builds.fresh:
            return np.ones(len(rows), bool)
        inside: Array = np.isin(kinds[rows], list(paid))
        return inside

    # --- the model ---

    def _targets(self, told: Mapping[int, float | None]) -> _Targets | None:
        """Capped, failures as the worst, what was expected taken off, standardised; None without a success."""
        good = [value for value in told.values() if value is not None]
        if not good or self.points is None:
            return None
        worst = float(np.quantile(good, CAP_QUANTILE)) if len(good) > 3 else max(good)
        logs = np.array([worst if value is None else min(worst, value) for value in told.values()])
        rows = list(told)
        left = logs - self._expected[rows]
        shift, scale = float(left.mean()), max(float(left.std()), LEAST_SCALE)
        return _Targets(rows, (left - shift) / scale, self._expected, shift, scale)

    def _follow(self, targets: _Targets) -> Process:
        """The process of everything told: scales fitted again where that is due, else the rows since the last added."""
        rows, points = targets.rows, self.points
        if points is None:
            raise BadInput("a model needs a list of configurations", got="an empty one")
        if self._scales is None or len(rows) >= self._fit_at:
            self._scales = fit(points, rows, targets.y, self._scales)
            self._fit_at = max(len(rows) + REFIT_LEAST, int(len(rows) * REFIT))
            self._process = None
        process = self._process or Process(points, self._scales, rows)
        for index in rows[len(process.rows) :]:
            process.add(index)
        self._process = process
        return process

    def _best(self, targets: _Targets, free: Array, count: int) -> list[int]:
        """The highest expected improvements, each picked as if those before it had the time expected of them."""
        process, y = self._follow(targets), targets.y
        expected = (targets.expected - targets.shift) / targets.scale
        seen = y + expected[targets.rows]
        picked: list[int] = []
        while len(picked) < count:
            left = np.flatnonzero(free)
            left = left[self._affordable(left, picked)]
            if not len(left):
                break
            found = process.believe(y)
            wanted = Belief(found.mean + expected, found.deviation)
            best = int(left[int(np.argmax(improvement(wanted, float(seen.min()))[left]))])
            picked.append(best)
            free[best] = False
            if len(picked) < count:
                process.add(best)
                y, seen = np.append(y, found.mean[best]), np.append(seen, wanted.mean[best])
        process.without(len(process.rows) - len(targets.rows))
        return picked


def _points(configurations: Sequence[Mapping[str, Any]], others: Array | None) -> Features | None:
    """The configurations as points; a machine's log slowdowns are a column more, as useful as they turn out to be."""
    if not configurations or others is None:
        return features(configurations) if configurations else None
    near = np.minimum(others, np.quantile(others, OTHERS_CAP, axis=1)[:, None])
    return with_columns(features(configurations), list(near), ELSEWHERE)


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and 0 < value < math.inf else None


def _in_logs(found: Belief, targets: _Targets) -> Belief:
    return Belief(targets.expected + targets.shift + targets.scale * found.mean, targets.scale * found.deviation)
