"""A duel: whether a choice still stands to its reference as a table says, by a race of the two.

A ratio of times taken side by side holds where clocks, neighbours and heat have changed, and absolute times do not. The
samples are those of a race: one of each a round, in shuffled order. But a race ends as soon as the faster one is known,
and here both go on until the ratio is known well enough.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from advisor.kernels.executor import Executor
from advisor.records import Choice, Measurement, Problem, Summary
from advisor.search.protocol import is_contended, noisy_samples, shuffled, single
from advisor.search.race import DROPS, GRACE_S, LEAST_ROUNDS, LOOKS, RaceOptions
from advisor.search.samples import Interval, log_ratio, smooth_p25

HOLDS, SLOWER, WRONG, FAILED, UNKNOWN = "holds", "slower", "wrong", "failed", "unknown"
"""The time over the reference's is, for sure, at most the bar above what was recorded, or more than the bar above it;
the output is wrong; it crashed or hung; none of these could be told."""

NO_TIME = "no time left: a larger --budget"
"""Why a verdict is unknown that more time would tell."""

ITSELF = "it is the default choice itself, and right: there is no ratio to compare"
NO_FIGURES = "it is right, but the table has no undisturbed times of a race to compare with"

TOO_FEW = "not told apart: the table's ratio rests on few samples, as a choice far behind is dropped from its race"
"""Why a ratio that is worse than recorded is no finding."""

DISTURBED = "most samples were disturbed: other processes held threads off their CPUs"

FEW = 2.0
"""Below nine samples a bootstrap interval is too narrow. Source: Student's t, 4.3 for three samples against 1.96."""

LEAST_INPUTS_S = 0.5
"""Inputs and reference have at least so long."""


class Duel(NamedTuple):
    """What is judged.

    Attributes:
        problem, choice: the cell of a table.
        reference: what it is compared with, the DEFAULT choice; the choice itself: only whether it is right.
        recorded: both figures as the table has them, the choice's first; None: there are none to compare with.
        bar: how much slower it may have become, 0.05 for 5 %.
    """

    problem: Problem
    choice: Choice
    reference: Choice
    recorded: tuple[Summary, Summary] | None
    bar: float


class Judged(NamedTuple):
    """What came of it.

    Attributes:
        verdict: one of the words above. reason: why it is none of the first two.
        ratio: time over the reference's, now; None where there are too few samples.
        change: that ratio over the recorded one. change_ci95: its interval, of both uncertainties.
        reference_change: time of the reference over what was recorded, which judges nothing: the machine's own.
        rounds: whole rounds.
    """

    verdict: str
    reason: str = ""
    ratio: float | None = None
    change: float | None = None
    change_ci95: tuple[float, float] | None = None
    reference_change: float | None = None
    rounds: int = 0


class _State:
    """Samples and noisy ones of each, a round after the other, and how it ended early."""

    def __init__(self, asked: Duel) -> None:
        both = dict.fromkeys((asked.choice, asked.reference))
        self.samples: dict[Choice, list[float]] = {choice: [] for choice in both}
        self.noisy = dict.fromkeys(both, 0)
        self.rounds = 0
        self.end: Judged | None = None


def duel(executor: Executor, asked: Duel, options: RaceOptions) -> Judged:
    """Sample both in turns until the verdict is sure, or rounds or time are used up.

    Args:
        executor: measures one sample at a time; checks the outputs of each before its first.
        asked: what is judged.
        options: seed, rounds, limit of a sample, deadline.
    """
    state, chance = _State(asked), random.Random(options.seed)
    if asked.recorded is None or asked.choice == asked.reference:
        _round(executor, asked, options, state, [asked.choice])
        same = asked.choice == asked.reference
        return state.end or Judged(*((HOLDS, ITSELF) if same else (UNKNOWN, NO_FIGURES)), rounds=1)
    found = Judged(UNKNOWN, NO_TIME)
    while found.verdict == UNKNOWN and state.end is None and state.rounds < options.rounds:
        _round(executor, asked, options, state, shuffled(chance, list(state.samples)))
        share = LOOKS[-1][1] if state.end else dict(LOOKS).get(state.rounds)
        if share is not None:
            found = _judge(asked, state, share, options.seed)
    if state.end and (state.end.verdict != UNKNOWN or state.rounds < LEAST_ROUNDS):
        return state.end
    return found


def _round(executor: Executor, asked: Duel, options: RaceOptions, state: _State, order: list[Choice]) -> None:
    """One sample of each; a round that is not whole does not count, and `state.end` says why it is none."""
    taken: dict[Choice, Measurement] = {}
    for choice in order:
        left_s = options.deadline - options.clock()
        if left_s <= 0:
            state.end = _end(UNKNOWN, NO_TIME, state)
            return
        limit_s = min(options.limit_s, left_s + GRACE_S)
        ask = single(limit_s, options.sample_s)
        if math.isfinite(left_s):
            ask = ask._replace(inputs_s=max(LEAST_INPUTS_S, left_s))
        found = executor.measure(asked.problem, choice, ask)
        if found.status != "ok" or not found.samples_ns:
            state.end = _failed(asked, found, state, cut_short=limit_s < options.limit_s)
            return
        taken[choice] = found
    for choice, found in taken.items():
        state.samples[choice].append(found.samples_ns[0])
        state.noisy[choice] += noisy_samples(found)
    state.rounds += 1


def _failed(asked: Duel, found: Measurement, state: _State, cut_short: bool) -> Judged:
    """What a failure says: nothing where nothing was launched, or where the end of the time cut it short."""
    why = " ".join(found.reason.split())[-200:]
    if found.status == "timeout" and cut_short:
        return _end(UNKNOWN, NO_TIME, state)
    whose = "" if found.choice == asked.choice else "the default choice: "  # the table answers with that one too
    if found.status == "skipped":
        return _end(UNKNOWN, f"{whose}{why}", state)
    if found.status == "wrong":
        return _end(WRONG, f"{whose}{why}", state)
    return _end(FAILED, f"{whose}{found.status} ({why})", state)


def _end(verdict: str, reason: str, state: _State) -> Judged:
    return Judged(verdict, reason, rounds=state.rounds)


# --- judging ---


def recorded_ratio(choice: Summary, reference: Summary) -> Interval:
    """The log ratio that a table has, with a 95 % interval from those of both figures."""
    centre = math.log(choice.p25_ns / reference.p25_ns)
    half = math.hypot(*(_half(one) for one in (choice, reference)))
    return Interval(centre, centre - half, centre + half)


def _half(figures: Summary) -> float:
    """Half the width of a figure's 95 % interval, in log. A default choice that was hopeless was dropped from its race
    after three samples."""
    low, high = figures.ci95_ns
    half = math.log(high / low) / 2 if 0 < low <= high else 0.0
    return half if figures.samples >= LEAST_ROUNDS else FEW * half


def known_lead(choice: Summary, reference: Summary) -> float | None:
    """What the record tells for sure where a figure rests on few samples: the log of the lead at which a race drops.

    A handful of samples in a row were taken within the same disturbance, so that their interval says nothing of other
    minutes: on a busy machine a default choice was seen at half and at twice its time. None: samples enough.
    """
    least = min(choice.samples, reference.samples)
    if least >= LEAST_ROUNDS:
        return None
    return math.log(max((lead for rounds, lead in DROPS.items() if rounds >= least), default=1.0))


def change(now: Interval, then: Interval) -> Interval:
    """The log of the ratio now over the recorded one; both uncertainties are added in quadrature."""
    centre, half = now.centre - then.centre, then.high - then.centre
    low, high = math.hypot(now.centre - now.low, half), math.hypot(now.high - now.centre, half)
    return Interval(centre, centre - low, centre + high)


def verdict(now: Interval, then: Interval, bar: float, lead: float | None = None) -> str:
    """What a ratio says beside the recorded one, both in log.

    Slower needs that the whole interval of the change lies above the bar. Where the recorded ratio is not sure itself
    the table has the benefit of the doubt, so that no number of samples leaves it open for ever.

    Args:
        now, then: the ratio now, and as recorded.
        bar: how much slower it may have become.
        lead: see `known_lead`; then slower needs that the lead itself is lost for sure, too.
    """
    if change(now, then).low > math.log1p(bar):
        lost = lead is None or now.low > math.log1p(bar) - lead
        return SLOWER if lost else UNKNOWN
    return HOLDS if now.high - then.high < math.log1p(bar) else UNKNOWN


def _judge(asked: Duel, state: _State, alpha: float, seed: int) -> Judged:
    """The verdict of the samples so far: open as long as the interval of the change reaches over the bar."""
    own, reference = state.samples[asked.choice], state.samples[asked.reference]
    if len(own) < LEAST_ROUNDS or asked.recorded is None:
        return Judged(UNKNOWN, NO_TIME, rounds=state.rounds)
    then, count = recorded_ratio(*asked.recorded), seed + state.rounds
    now = log_ratio(reference, own, 0.05, count)
    shown, lead = change(now, then), known_lead(*asked.recorded)
    told = Judged(
        verdict(log_ratio(reference, own, alpha, count), then, asked.bar, lead),
        "",
        math.exp(now.centre),
        math.exp(shown.centre),
        (math.exp(shown.low), math.exp(shown.high)),
        smooth_p25(reference) / asked.recorded[1].p25_ns,
        state.rounds,
    )
    if any(is_contended(count, len(state.samples[one])) for one, count in state.noisy.items()):
        return told._replace(verdict=UNKNOWN, reason=DISTURBED)
    if told.verdict != UNKNOWN:
        return told
    few = lead is not None and shown.low > math.log1p(asked.bar)
    return told._replace(reason=TOO_FEW if few else f"too noisy for a bar of {asked.bar:.1%}")
