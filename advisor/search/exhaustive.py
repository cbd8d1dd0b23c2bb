"""The exhaustive pass: the same first look at every choice that the search left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from advisor.records import Choice
from advisor.search.known import REST
from advisor.search.look import Place, group_key
from advisor.search.race import LEAST_ROUNDS, Heat
from advisor.search.request import Regret
from advisor.search.run import Limits, Run, ranked
from advisor.search.samples import excess, smooth_p25

CHUNK = 32
"""Choices that are compiled together."""

REGRET_ROUNDS, REGRET_SAMPLE_S = 80, 0.004
"""Of the race that measures regret: twice the rounds and the length of a final's, to tell 2 % on a noisy machine."""

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


def regret(run: Run, place: Place, searched: Choice, others: Sequence[Choice]) -> Regret | None:
    """The searched choice's time over the best known, from a race of its own with fresh samples.

    Args:
        run: measures.
        place: the problem and its DEFAULT.
        searched: what the search chose.
        others: what an exhaustive pass and its race found best.

    Returns:
        None when the searched choice failed, or there was no time for enough rounds.
    """
    choices = tuple(dict.fromkeys((searched, *others)))
    heat = Heat(place.problem, choices, place.default, "regret")
    _, samples = run.race(heat, Limits(run.deadline, rounds=REGRET_ROUNDS, sample_s=REGRET_SAMPLE_S))
    count = len(samples.get(searched, ()))
    rows = {choice: times[:count] for choice, times in samples.items() if len(times) >= count}
    if count < LEAST_ROUNDS:
        return None
    listed = list(rows)
    between = excess([rows[choice] for choice in listed], listed.index(searched), 0.05, run.request.options.seed)
    best = min(listed, key=lambda choice: smooth_p25(rows[choice]))
    ends = (math.exp(between.low), math.exp(between.high))
    return Regret(place.problem, searched, best, math.exp(between.centre), ends)
