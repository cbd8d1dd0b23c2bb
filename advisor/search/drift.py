"""Drift of clock and heat: one reference choice measured again and again while a search takes its first looks.

A look at the end of a search and one at its start are minutes apart, and a processor that has grown warm is slower. The
race is interleaved and needs none of this. A look that was taken while the reference ran clearly slower or faster than
at first is marked with that factor, and judged by its time over it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from advisor.records import Choice, Measurement, Problem, pairs

SHARE = 0.02
"""Of the time of a search, for measuring the reference."""

BAND = 0.05
"""Log ratio under which a drift is none of ours: a race tells such differences apart, looks need not."""

SURE = 3.0
"""Standard deviations of a reading that a drift must exceed: else noise would be corrected by noise."""

MEDIAN_OF, LEAST_READINGS = 3, 6
"""Readings of which the first and the latest are taken as a median, and how many there must be for both."""

MARK = "drift"
"""The field of a measurement's conditions that holds the factor."""


class Watch:
    """The reference of one problem: who it is, its readings in ns, the seconds they took."""

    def __init__(self, problem: Problem, begun_s: float) -> None:
        self.problem = problem
        self.choice: Choice | None = None
        self.readings: list[float] = []
        self.marked: list[float] = []
        self._begun_s, self._spent_s, self._expected_s = begun_s, 0.0, math.inf

    def refer_to(self, choice: Choice, expected_s: float) -> None:
        """Take a choice as the reference, once and for all; a reading is expected to take so many seconds."""
        if self.choice is None:
            self.choice, self._expected_s = choice, expected_s

    def is_due(self, now_s: float) -> bool:
        """Whether a reading now keeps all of them within their share of the time since the search began."""
        return self._spent_s + self._expected_s <= SHARE * (now_s - self._begun_s)

    def read(self, time_ns: float | None, seconds: float) -> None:
        """Take a reading (None: it failed) that took so long."""
        self._spent_s += seconds
        self._expected_s = max(seconds, 1e-6)
        if time_ns is not None:
            self.readings.append(time_ns)

    def mark(self, measurement: Measurement) -> Measurement:
        """The measurement, with the factor by which everything runs slower now, where that is beyond doubt."""
        factor = drift(self.readings)
        if factor == 1.0:
            return measurement
        self.marked.append(factor)
        return measurement._replace(conditions=pairs({**dict(measurement.conditions), MARK: factor}))

    def note(self) -> str:
        """What the user should know; empty where no look was marked."""
        if not self.marked:
            return ""
        most = max(self.marked, key=lambda factor: abs(math.log(factor)))
        way = "slower" if most > 1 else "faster"
        return (
            f"n = {self.problem.n}: clock or heat drifted, a reference ran up to {abs(most - 1):.0%} {way} than first; "
            f"{len(self.marked)} first looks are marked and corrected by it, the race needs no correction"
        )


def drift(readings_ns: Sequence[float]) -> float:
    """How much longer the reference takes now than at first; exactly 1 where noise may be all there is.

    Args:
        readings_ns: all readings, in order.
    """
    if len(readings_ns) < LEAST_READINGS:
        return 1.0
    logs = [math.log(reading) for reading in readings_ns]
    change = statistics.median(logs[-MEDIAN_OF:]) - statistics.median(logs[:MEDIAN_OF])
    return math.exp(change) if abs(change) > max(BAND, SURE * noise(logs)) else 1.0


def noise(logs: Sequence[float]) -> float:
    """Standard deviation of a reading, from the steps between neighbours, which a slow drift leaves alone.

    The median of the absolute difference of two equal normal numbers is 0.954 standard deviations: the third quartile
    of the normal distribution, 0.6745, times the square root of two.
    """
    steps = [abs(after - before) for before, after in itertools.pairwise(logs)]
    return statistics.median(steps) / 0.954


def correction(measurement: Measurement) -> float:
    """The factor that a look was marked with; 1 where it was not."""
    return float(dict(measurement.conditions).get(MARK) or 1.0)
