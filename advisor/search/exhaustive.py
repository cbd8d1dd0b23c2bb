"""The exhaustive pass: the same first look at every choice that the search left out."""

from __future__ import annotations

import math
from typing import NamedTuple

from advisor.records import Choice, Verdict
from advisor.search.known import REST
from advisor.search.look import Place, group_key, ranked
from advisor.search.request import Regret
from advisor.search.run import Run
from advisor.search.samples import log_ratio, smooth_p25

CHUNK = 32
"""Choices that are compiled together."""

RIVALS = 5
"""Best first looks over the whole space that the searched choice is judged against."""


class Pass(NamedTuple):
    """How an exhaustive pass went: seconds, first looks over the whole space, and whether it came to its end."""

    seconds: float
    looked: int
    complete: bool


def measure_rest(run: Run, place: Place) -> Pass:
    """Look at every choice not looked at yet, grouped, until done or out of time."""
    for measurement in run.known.rest.get(place.problem, ()):
        run.remember(measurement)
    done = run.looks.get(place.problem, {})
    left = sorted((c for c in place.choices if c not in done), key=group_key)
    begun = run.clock()
    run.progress.stage(f"n={place.problem.n}: every choice", len(left))
    for first in range(0, len(left), CHUNK):
        if run.out_of_time():
            break
        chunk = left[first : first + CHUNK]
        run.prepare(place.problem, chunk)
        _look_at(run, place, chunk)
        run.log.sync()
    looked = len(run.looks.get(place.problem, {}))
    return Pass(run.clock() - begun, looked, looked >= len(place.choices))


def _look_at(run: Run, place: Place, chunk: list[Choice]) -> None:
    for choice in chunk:
        if run.out_of_time():
            return
        run.look(place.problem, choice, REST)
        run.progress.advance(f"n={place.problem.n}")


def rivals(run: Run, place: Place) -> tuple[Choice, ...]:
    """The choices with the best first looks over the whole space."""
    looks = list(run.looks.get(place.problem, {}).values())
    return tuple(measurement.choice for measurement in ranked(looks)[:RIVALS])


def regret(verdict: Verdict, searched: Choice, samples: dict[Choice, list[float]], seed: int) -> Regret | None:
    """The searched choice's time over the lowest in the race, from the race's own samples.

    Returns:
        None when the searched choice or everybody else failed, or the verdict came from the log.
    """
    good = {s.choice for s in verdict.standings if s.outcome != "failed" and samples.get(s.choice)}
    if searched not in good:
        return None
    best = min(good, key=lambda choice: (smooth_p25(samples[choice]), choice != searched))
    count = min(len(samples[best]), len(samples[searched]))
    between = log_ratio(samples[best][:count], samples[searched][:count], 0.05, seed)
    ends = (math.exp(between.low), math.exp(between.high))
    return Regret(verdict.problem, searched, best, math.exp(between.centre), ends)
