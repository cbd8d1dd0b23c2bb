"""The protocol of measuring: how long, how often, and by which rule anything is timed. Everybody who times asks here.

Numbers and asks only. The worker's side of it (warm-up, rejection by run delay) is `advisor.kernels.sampling`, the
figures are `advisor.search.samples`, the judge is `advisor.search.race`. docs/measuring.md tells it in words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from advisor.kernels.executor import Ask
from advisor.records import Measurement

VERSION = 1
"""Version of the way things are measured; logs of another protocol are not resumed from."""

LOOK_SAMPLES, QUICK_LOOK_SAMPLES = 5, 3
"""Samples of a first look."""

READING_SAMPLE_S = 0.004
"""One reading of the reference that shows drift of clock and heat: a single sample, as long as a look."""

FIGURE_SAMPLES = 15
"""Samples of a figure that is reported by itself, not beside others."""

LOOK_SAMPLE_S, RACE_SAMPLE_S = 0.001, 0.002
"""Least duration of a sample: in a look, and where choices are told apart; 2 ms halves the noise of 0.5 ms."""

GIVE_UP = 2.0
"""A first look stops after one sample over 2 x the best so far, and after three that are all over 1.25 x (the worker's
`sampling.CONTENDER`): five samples are for contenders."""

RACE_ROUNDS, QUICK_RACE_ROUNDS = 40, 20
"""Rounds of a race at most."""

WINDOW_S, QUICK_WINDOW_S = 1.0, 0.3
"""Time in the kernel of a window. Shorter than some time slices of the scheduler, and no stall would be seen."""

WINDOW_SAMPLE_S = 0.02
"""One sample of a window: several time slices, so that its mean holds stalls in proportion."""

CONTENDED = 0.5
"""From this share of samples that were kept although noisy on, a figure is contended: too few clean ones carry it."""

T = TypeVar("T")


def look(quick: bool, limit_s: float, best_ns: float | None) -> Ask:
    """A first look; far slower than the best so far is given up after one sample.

    Args:
        quick: fewer samples.
        limit_s: wall-clock limit.
        best_ns: best figure so far of the same problem; None: there is none.
    """
    samples = QUICK_LOOK_SAMPLES if quick else LOOK_SAMPLES
    return Ask(samples, limit_s, LOOK_SAMPLE_S, None if best_ns is None else GIVE_UP * best_ns)


def single(limit_s: float, sample_s: float = RACE_SAMPLE_S, long_calls: bool = False) -> Ask:
    """One sample of a round.

    Args:
        limit_s: wall-clock limit.
        sample_s: least duration.
        long_calls: a call that fills the sample by itself is the sample where nothing disturbed it: two calls in all.
    """
    return Ask(1, limit_s, sample_s, 0.0 if long_calls else None)


def window(quick: bool, limit_s: float) -> Ask:
    """Samples one after another over a second (a third of one when quick), nothing rejected."""
    seconds = QUICK_WINDOW_S if quick else WINDOW_S
    return Ask(round(seconds / WINDOW_SAMPLE_S), limit_s, WINDOW_SAMPLE_S, quiet=False)


def reading(limit_s: float) -> Ask:
    """One reading of the reference that shows drift."""
    return Ask(1, limit_s, READING_SAMPLE_S)


def shuffled(chance: random.Random, items: Sequence[T]) -> list[T]:
    """A round's order: a fixed one favours whoever comes first, in blocks drift passes for a difference."""
    order = list(items)
    chance.shuffle(order)
    return order


def noisy_samples(measurement: Measurement) -> int:
    """How many of its samples were kept although something held a thread off its CPU, repeats being no better."""
    count = dict(measurement.conditions).get("kept_noisy") or 0
    return min(int(count), len(measurement.samples_ns))


def is_contended(noisy: int, samples: int) -> bool:
    """Whether so many of the samples were noisy that their figure says more about the neighbours than the choice."""
    return samples > 0 and noisy >= CONTENDED * samples
