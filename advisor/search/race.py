"""The race: the judge that says which of a few choices is fastest, or that it cannot tell.

One sample a choice a round, in shuffled order, so that drift hits all alike. A choice that is hopeless is dropped; at
a few rounds ("looks") the others are compared with the leader. Looking often finds differences that are not there, so
each look may spend only a part of the allowed error (`LOOKS`). What cannot be told apart is a tie; ties go to what was
picked before, then to the fewest threads.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from advisor.codec import digest
from advisor.kernels.executor import Executor
from advisor.records import Choice, Measurement, Problem, Standing, Verdict
from advisor.search.protocol import RACE_SAMPLE_S, is_contended, noisy_samples, shuffled, single
from advisor.search.samples import Interval, log_quantiles, log_ratio, point_excess, resample, smooth_p25, summary
from advisor.search.space import is_default_process

LOOKS = ((9, 0.005), (14, 0.010), (20, 0.015), (28, 0.020), (40, 0.040))
"""(round, share of resamples outside the interval) of each look.

Alpha spending: early looks are strict, so that five looks together call at most one A/A race in ten. Source: Lan and
DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983); the shares were set on recorded
noise with benchmarks/judge.py. The first look has the least number of samples that a ranking may rest on, 9.
"""

LEAST_ROUNDS = LOOKS[0][0]
"""Samples of each choice before a ranking counts."""

NEGLIGIBLE = 0.003
"""Log ratio under which a difference does not matter: an interval must lie outside +-0.3 % to tell two apart."""

NARROW = 0.01
"""Width of a 95 % interval of the log ratio that proves a tie."""

DROPS = {3: 1.25, 5: 1.12}
"""Round -> factor: a choice is dropped when its minimum is over so many times the maximum of the best. Samples of two
equals, five each, lie wholly apart in one case of 126, and then not by 12 %."""

PRECISE_ROUND, PRECISE_DROP = 3, 1.05
"""The same where samples are precise: on an H200 nine in ten choices of a race spread by less than 1.5 %, median 0.3.
Not for the DEFAULT, to which tables hold every other ratio."""

TIE_REACH = 0.02
"""A tie goes to fewer threads only when they are estimated at most 2 % slower than the leader.

In great noise or after few rounds "not told apart" reaches far, and the careful choice should not cost that much; with
a narrower reach, reruns of nearly equal choices name another winner more often.
"""

KEEP_REACH = 0.05
"""What an earlier run picked stays when it is estimated at most 5 % slower than the leader and not told apart: what a
search may miss the best by, and about what the estimates of two races differ by in noise."""


GRACE_S = 1.0
"""A measurement that is under way when the time ends is waited for so long: most end by then, and what hangs would take
many times as long. What is cut off then has not failed: it counts as not measured."""


class Heat(NamedTuple):
    """What is raced: a problem, distinct choices, the DEFAULT choice, the purpose.

    `failed`: choices that failed before the race; they get a standing and are not measured. `keep`: what
    earlier runs picked, the first above all; of equals it stays.
    """

    problem: Problem
    choices: tuple[Choice, ...]
    default: Choice
    purpose: str = "final"
    failed: tuple[Choice, ...] = ()
    keep: tuple[Choice, ...] = ()


class RaceOptions(NamedTuple):
    """How.

    Attributes:
        seed: of the shuffling and the resampling.
        rounds: at most this many.
        samples: at most about this many over all choices; the round under way is finished, and nine rounds at least.
        limit_s: wall-clock limit of one sample.
        sample_s: least duration of one sample.
        deadline: on `clock`; no sample starts after it.
        clock: seconds.
        quiet: repeat samples that something disturbed.
        precise: samples spread little, as on a device.
    """

    seed: int = 0
    rounds: int = LOOKS[-1][0]
    samples: float = math.inf
    limit_s: float = 20.0
    sample_s: float = RACE_SAMPLE_S
    deadline: float = math.inf
    clock: Callable[[], float] = time.monotonic
    quiet: bool = True
    precise: bool = False


class RaceSample(NamedTuple):
    """One sample as it is handed to `on_sample`."""

    round: int
    order: int
    choice: Choice
    measurement: Measurement


OnSample = Callable[[RaceSample], None]


def _ignore(sample: RaceSample) -> None:
    """No listener."""


class _State:
    """The race so far. `active` are still measured; `slower` and `failed` no longer."""

    def __init__(self, heat: Heat, options: RaceOptions) -> None:
        self.heat, self.options = heat, options
        self.rng = random.Random(options.seed)
        self.samples: dict[Choice, list[float]] = {choice: [] for choice in heat.choices}
        self.noisy = dict.fromkeys(heat.choices, 0)
        self.active = list(heat.choices)
        self.slower: list[Choice] = []
        self.failed: list[Choice] = []
        self.ties: list[Choice] = []
        self.rounds = 0

    def retire(self, choices: Sequence[Choice], into: list[Choice]) -> None:
        into.extend(choices)
        self.active = [choice for choice in self.active if choice not in choices]

    def leader(self) -> Choice:
        """The active choice with the lowest 25th percentile; the first listed among equals."""
        return min(self.active, key=lambda choice: smooth_p25(self.samples[choice]))


def race(executor: Executor, heat: Heat, options: RaceOptions, on_sample: OnSample = _ignore) -> Verdict | None:
    """Race choices until their order is settled, they tie, the rounds or the time run out.

    Args:
        executor: measures one sample at a time.
        heat: who races on what.
        options: seed, limits, deadline.
        on_sample: told every sample as it comes, also those that failed.

    Returns:
        The verdict, or None when no choice gave a sample in a whole round.
    """
    state = _State(heat, options)
    while state.active and not _settled(state) and _round(executor, state, on_sample):
        if state.rounds in DROPS:
            _drop(state, DROPS[state.rounds], state.active)
        if options.precise and state.rounds == PRECISE_ROUND:
            _drop(state, PRECISE_DROP, [choice for choice in state.active if choice != heat.default])
        share = dict(LOOKS).get(state.rounds, LOOKS[-1][1] if _spent(state) else None)
        if share is not None and state.rounds >= LEAST_ROUNDS:
            _look(state, share)
    if state.rounds == 0 or not state.active:
        return None
    return _verdict(state)


def _spent(state: _State) -> bool:
    """Whether the rounds or the samples allowed are used up."""
    used = sum(len(samples) for samples in state.samples.values())
    options = state.options
    return state.rounds >= options.rounds or (state.rounds >= LEAST_ROUNDS and used >= options.samples)


def _settled(state: _State) -> bool:
    """Whether more rounds are of no use or not allowed."""
    return _spent(state) or (state.rounds >= LEAST_ROUNDS and len(state.active) == 1 + len(state.ties))


def _round(executor: Executor, state: _State, on_sample: OnSample) -> bool:
    """One sample of every active choice in shuffled order; False when the time ran out (the round does not count)."""
    order = shuffled(state.rng, state.active)
    taken: dict[Choice, Measurement] = {}
    for place, choice in enumerate(order):
        left_s = state.options.deadline - state.options.clock()
        if left_s <= 0:
            return False
        limit_s = min(state.options.limit_s, left_s + GRACE_S)
        ask = single(limit_s, state.options.sample_s)._replace(quiet=state.options.quiet)
        measurement = executor.measure(state.heat.problem, choice, ask)
        if measurement.status == "timeout" and limit_s < state.options.limit_s:
            return False
        on_sample(RaceSample(state.rounds + 1, place, choice, measurement))
        if measurement.status == "ok" and measurement.samples_ns:
            taken[choice] = measurement
        else:
            state.retire([choice], state.failed)
    for choice, measurement in taken.items():
        state.samples[choice].append(measurement.samples_ns[0])
        state.noisy[choice] += noisy_samples(measurement)
    state.rounds += 1
    return True


def _drop(state: _State, factor: float, among: Sequence[Choice]) -> None:
    """Drop the hopeless among some."""
    if len(state.active) > 1:
        bar = factor * max(state.samples[state.leader()])
        state.retire([choice for choice in among if min(state.samples[choice]) > bar], state.slower)


def _interval(state: _State, choice: Choice, against: Choice) -> Interval:
    """95 % interval of the log ratio of `choice` over `against`, over the rounds that both ran."""
    common = min(len(state.samples[choice]), len(state.samples[against]))
    a, b = state.samples[against][:common], state.samples[choice][:common]
    return log_ratio(a, b, 0.05, state.options.seed + state.rounds)


def _look(state: _State, alpha: float) -> None:
    """Compare every active choice with the leader: slower, proven tie, or open."""
    if len(state.active) < 2:
        return
    indices = resample(state.rounds, state.options.seed + state.rounds)
    draws = {choice: log_quantiles(np.asarray(state.samples[choice]), indices) for choice in state.active}
    leader = state.leader()
    ratios = {choice: draws[choice] - draws[leader] for choice in state.active if choice != leader}
    alpha /= math.comb(len(state.active), 2)  # Bonferroni over pairs: of several equals, chance picks the leader too
    slower = [choice for choice, ratio in ratios.items() if np.quantile(ratio, alpha / 2) > NEGLIGIBLE]
    state.ties = [c for c, ratio in ratios.items() if np.ptp(np.quantile(ratio, [0.025, 0.975])) < NARROW]
    state.ties = [choice for choice in state.ties if choice not in slower]
    state.retire(slower, state.slower)


def _winner(state: _State) -> Choice:
    """The leader, or the tied choice that the fixed rule prefers, see `rule`.

    Before the first look a ranking may not rest on the samples, and neither may a tie: the leader it is.
    """
    leader = state.leader()
    if state.rounds < LEAST_ROUNDS:
        return leader
    best = smooth_p25(state.samples[leader])
    reach = {choice: KEEP_REACH if choice in state.heat.keep else TIE_REACH for choice in state.active}
    tied = [choice for choice in reach if smooth_p25(state.samples[choice]) <= best * math.exp(reach[choice])]
    return min(tied, key=lambda choice: rule(choice, state.heat))


def rule(choice: Choice, heat: Heat) -> tuple[int, int, bool, bool, str]:
    """What decides among equals, the lowest wins: what was picked before, fewest threads, the DEFAULT, threads that
    wait as their runtime lets them, the lowest digest.

    The rule knows nothing of this race, so that two tunes name the same of the equals that both raced.
    """
    kept = heat.keep.index(choice) if choice in heat.keep else len(heat.keep)
    threads = choice.team.threads if choice.team else 0
    return kept, threads, choice != heat.default, not is_default_process(choice.process), digest(choice)


def _standing(state: _State, choice: Choice, winner: Choice) -> Standing:
    samples = state.samples[choice]
    if choice in state.failed or not samples:
        return Standing(choice, "failed", summary(samples, state.options.seed) if samples else None, None, None)
    outcome = "winner" if choice == winner else "tie" if choice in state.active else "slower"
    between = _interval(state, choice, winner)
    ends = (math.exp(between.low), math.exp(between.high))
    figures = summary(samples, state.options.seed)
    contended = is_contended(state.noisy[choice], len(samples))
    return Standing(choice, outcome, figures, math.exp(between.centre), ends, _regret(state, choice), contended)


def _regret(state: _State, choice: Choice) -> float | None:
    """Its time over the best known, None after too few rounds to pick the best on one half and time it on the other."""
    count = len(state.samples[choice])
    listed = [other for other in state.heat.choices if len(state.samples[other]) >= count]
    if count < LEAST_ROUNDS:
        return None
    return math.exp(point_excess([state.samples[other][:count] for other in listed], listed.index(choice)))


def _verdict(state: _State) -> Verdict:
    winner, heat = _winner(state), state.heat
    standings = [_standing(state, choice, winner) for choice in heat.choices]
    standings += [Standing(choice, "failed", None, None, None) for choice in heat.failed]
    ranked = sorted(standings, key=lambda s: (s.outcome != "winner", s.ratio is None, s.ratio or 0.0))
    return Verdict(heat.problem, heat.purpose, winner, heat.default, state.rounds, tuple(ranked))
