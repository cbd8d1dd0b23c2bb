"""What a choice is best at: time, time beside a neighbour, or work done for the least effort.

latency: the race's winner. robust: the lowest mean time beside one busy neighbour; among those nearly as low the
lowest 99th percentile. efficiency: of those within 5 % of the best time, the fewest joules where all of them were
metered, else the fewest core-seconds (threads x time).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advisor.codec import digest
from advisor.records import Choice, Measurement, Standing, Summary, Verdict
from advisor.search.bounds import threads_of
from advisor.search.run import value_of
from advisor.search.samples import summary

WITHIN = 1.05
"""Efficiency may cost this much of the best time."""

MEANS_TIE = 1.05
"""Means beside a neighbour that lie within this are told apart by their 99th percentile: a window of a second holds few
stalls, so a mean is no surer than that."""

LOOK_NOISE = 1.15
"""First looks may be so far off: one this much over the best may turn out within 5 % of it."""

ROBUST_REACH = 4.0
"""A first look over this many times the best is no finalist, however robust."""


class Figures(NamedTuple):
    """What is known of one choice at one problem: quiet figures, those beside a neighbour, joules of one call."""

    choice: Choice
    quiet: Summary | None = None
    stolen: Summary | None = None
    joules: float | None = None

    @property
    def fragility(self) -> float | None:
        """Mean time beside one busy neighbour over the 25th percentile without."""
        return self.stolen.mean_ns / self.quiet.p25_ns if self.stolen and self.quiet else None


def of_race(
    standings: Sequence[Standing], stolen: Mapping[Choice, Summary], joules: Mapping[Choice, float]
) -> list[Figures]:
    """The figures of those that a race did not see fail."""
    return [
        Figures(s.choice, s.summary, stolen.get(s.choice), joules.get(s.choice))
        for s in standings
        if s.summary is not None and s.outcome != "failed"
    ]


def most_robust(known: Sequence[Figures]) -> Choice | None:
    """The choice that a busy neighbour costs least; None where none was measured beside one."""
    means = {one.choice: one.stolen for one in known if one.stolen is not None}
    if not means:
        return None
    lowest = min(figures.mean_ns for figures in means.values())
    tied = [choice for choice, figures in means.items() if figures.mean_ns <= MEANS_TIE * lowest]
    return min(tied, key=lambda choice: (means[choice].p99_ns, means[choice].mean_ns, _rule(choice)))


def most_efficient(known: Sequence[Figures]) -> Choice | None:
    """The choice that does the work for the least effort, of those within 5 % of the best time; None without any."""
    times = {one.choice: one.quiet.p25_ns for one in known if one.quiet}
    if not times:
        return None
    near = [one for one in known if times.get(one.choice, math.inf) <= WITHIN * min(times.values())]
    metered = all(one.joules is not None for one in near)
    effort = {one.choice: (one.joules or 0.0) if metered else core_ns(one.choice, times[one.choice]) for one in near}
    return min(effort, key=lambda choice: (effort[choice], _rule(choice)))


def core_ns(choice: Choice, time_ns: float) -> float:
    """Nanoseconds of one call times its threads."""
    return time_ns * threads_of(choice)


def best(known: Sequence[Figures], objective: str, fastest: Choice) -> Choice:
    """The best of some choices for an objective; `fastest`, which leads by time, where the figures do not say."""
    if objective == "robust":
        return most_robust(known) or fastest
    if objective == "efficiency":
        return most_efficient(known) or fastest
    return fastest


def figures_of(verdict: Verdict, stolen: Sequence[Measurement], metered: Sequence[Measurement]) -> list[Figures]:
    """The figures of all that a race did not see fail.

    Args:
        verdict: a final race.
        stolen, metered: measurements beside a neighbour, and with a counter of energy, of any problem.
    """
    here = [m for m in stolen if m.problem == verdict.problem and m.status == "ok" and m.samples_ns]
    beside = {m.choice: summary(m.samples_ns) for m in here}
    joules = {m.choice: j for m in metered if m.problem == verdict.problem and (j := joules_of(m)) is not None}
    return of_race(verdict.standings, beside, joules)


def picked(
    verdict: Verdict, objective: str, stolen: Sequence[Measurement], metered: Sequence[Measurement] = ()
) -> Choice:
    """The best of all that raced, of whatever process part; see `figures_of` and `best`."""
    return best(figures_of(verdict, stolen, metered), objective, verdict.winner)


def lost_by(known: Sequence[Figures], objective: str, old: Choice, new: Choice) -> float | None:
    """The figure of one choice over another's, by what an objective is about: over 1 where the old one is worse.

    Args:
        known: figures of one race and of what was measured after it.
        objective: one of OBJECTIVES.
        old, new: two choices.

    Returns:
        For efficiency, where the old one costs more than 5 % of the best time, the ratio of the times, as it is none
        of those to choose from. None where the objective's figure is not known of both.
    """
    figures = {one.choice: one for one in known}
    ours, theirs = figures.get(old), figures.get(new)
    if ours is None or theirs is None or ours.quiet is None or theirs.quiet is None:
        return None
    times = ours.quiet.p25_ns, theirs.quiet.p25_ns
    if objective == "robust":
        return ours.stolen.mean_ns / theirs.stolen.mean_ns if ours.stolen and theirs.stolen else None
    if objective == "efficiency" and times[0] <= WITHIN * min(one.quiet.p25_ns for one in known if one.quiet):
        if ours.joules is not None and theirs.joules:
            return ours.joules / theirs.joules
        return core_ns(old, times[0]) / core_ns(new, times[1])
    return times[0] / times[1]


def joules_of(measurement: Measurement) -> float | None:
    """Joules of one call: mean power over the measurement times the mean time of a call; None without a counter."""
    known = dict(measurement.conditions)
    if (
        measurement.status != "ok"
        or not measurement.samples_ns
        or not known.get("joules")
        or not known.get("metered_s")
    ):
        return None
    mean_s = sum(measurement.samples_ns) / len(measurement.samples_ns) * 1e-9
    return float(known["joules"]) / float(known["metered_s"]) * mean_s


def contenders(looks: Sequence[Measurement], objective: str) -> tuple[Choice, ...]:
    """Who must race beside the usual finalists, since this objective may want them: the best of each team size.

    The usual finalists are those that look fastest, and may all have one size of team.

    Args:
        looks: first looks at one problem.
        objective: one of OBJECTIVES.
    """
    reach = {"robust": ROBUST_REACH, "efficiency": WITHIN * LOOK_NOISE}.get(objective)
    known = sorted(
        ((value, _rule(m.choice), m.choice) for m in looks if (value := value_of(m)) is not None),
        key=lambda one: one[:2],
    )
    if reach is None or not known:
        return ()
    first: dict[int, Choice] = {}
    for value, _, choice in known:
        if value <= reach * known[0][0]:
            first.setdefault(threads_of(choice), choice)
    return tuple(first.values())


def _rule(choice: Choice) -> tuple[int, str]:
    """What decides among equals."""
    return threads_of(choice), digest(choice)
