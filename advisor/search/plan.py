"""The plan of a budget: how much of the time each problem gets, and how much of that is kept for its race."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from advisor.device import is_device
from advisor.kernels.spec import KernelSpec
from advisor.records import Measurement, Problem
from advisor.search.protocol import RACE_SAMPLE_S
from advisor.search.race import LEAST_ROUNDS
from advisor.search.request import Request
from advisor.search.seeds import call_s

CROSSING_SHARE = 0.08
"""Of the whole budget, kept for placing borders after all problems are done."""

STOLEN_SHARE = 0.1
"""Of the whole budget, kept for what comes last: the winners beside a busy neighbour, or their energy on a device."""

RACE_SHARE = 0.4
"""Of a problem's time, kept for its race. Without a race the best-looking is 2 to 6 % off from noise alone."""

LOOK_FIXED_S, LOOK_CALLS = 0.3, 7
"""A first look's time, to share a budget only: building and verifying; 5 samples and 2 warm-ups."""

LARGE_S, SMALL_SHARE, LARGE_SHARE, LEAST_TRIALS = 1.6e-3, 1 / 8, 1 / 20, 24
"""Trials: at most an eighth of the space, a twentieth where a call is expected to take longer than this and each look
costs more (one-head decode from n = 16384, one-head forward from 512), but up to two dozen in a small space."""

SPARE_SHARE = 1 / 2
"""Of the time left that no problem must have, what one more program of a device may take to compile."""

DEVICE_SPEED = 100.0
"""A device is taken for so many times as fast as one CPU: 1 TB/s. To share time by only."""

LEAST_ON_DEVICE, LEAST_AFTER = 48, 32
"""The same on a device, at the first n and where a smaller one is done: looks there are quick, a pass over everything
takes a few seconds, and what a search misses it misses in every call. Those at knobs around the best come on top."""

EXCHANGE = 0.2
"""What time is worth: a tenth of an exhaustive pass must be expected to bring 2 %, and less in proportion."""

WORTH = math.log(1.01)
"""Improvement that counts, and the least promise with which a search goes on: 1 %."""

LEAST_FINALISTS = 3
"""Finalists that race however little time there is."""

SMALL_RACE, LARGE_RACE, LEAST_RACED = 1 / 16, 1 / 30, 3
"""Time of a race: this share of what looking at the whole space would take, but always enough for three choices.

With the shares of trials this keeps a search under a fifth of the time of an exhaustive one, under a tenth where calls
are long, in spaces of some 300 choices and more; smaller ones: docs/figures.md.
"""


class Slice(NamedTuple):
    """A problem's time on the run's clock: the search ends at `search_until`, its race at `race_until`.

    What serves all problems, a program that a device's tool compiles, may take until `spare_until` if that is later.
    """

    search_until: float
    race_until: float
    spare_until: float = -math.inf


def weight(spec: KernelSpec, problem: Problem, device: bool = False) -> float:
    """Expected seconds of one first look."""
    return LOOK_FIXED_S + LOOK_CALLS * call_s(spec, problem) / (DEVICE_SPEED if device else 1.0)


def is_large(spec: KernelSpec, problem: Problem, device: bool = False) -> bool:
    """Whether looks at this problem cost so much that fewer are worth it: on a device all, since a pass over everything
    takes seconds there."""
    return device or call_s(spec, problem) >= LARGE_S


def kept_after(request: Request) -> float:
    """The share of the budget for what comes after the borders. A device has no busy neighbour, and its search has more
    use for the time than energy that is not asked for."""
    spared = is_device(request.machine.limits_id) and request.options.objective != "efficiency"
    return 0.0 if spared else STOLEN_SHARE


def time_slice(
    now: float,
    deadline: float,
    spec: KernelSpec,
    problems: Sequence[Problem],
    device: bool = False,
    kept: float = STOLEN_SHARE,
    least: Sequence[float] = (),
) -> Slice:
    """The time of the first of the problems still to do; what it leaves goes to those after it.

    Args:
        now, deadline: on the run's clock; the deadline is infinite without a budget.
        spec: predicts what a look costs.
        problems: still to do, in order.
        device: whether calls run on one.
        kept: share for what comes after the borders.
        least: seconds that each of the problems must have; who needs more than its share leaves less to the others.
    """
    if math.isinf(deadline):
        return Slice(math.inf, math.inf)
    left = max(0.0, deadline - now) * (1 - CROSSING_SHARE - kept)
    weights = [weight(spec, problem, device) for problem in problems]
    share = _first_of(left, weights, least or [0.0] * len(weights))
    spare = SPARE_SHARE * (left - sum(least)) if least else -math.inf
    return Slice(now + share * (1 - RACE_SHARE), now + share, now + spare)


def _first_of(left: float, weights: Sequence[float], least: Sequence[float]) -> float:
    """The first one's part of the time left: shared by weight, but each has its least, as far as that goes."""
    bound: set[int] = set()
    while len(bound) < len(weights):
        free = [i for i in range(len(weights)) if i not in bound]
        unit = max(0.0, left - sum(least[i] for i in bound)) / sum(weights[i] for i in free)
        more = {i for i in free if unit * weights[i] < least[i]}
        if not more:
            return unit * weights[0] if 0 in free else least[0]
        bound |= more
    return least[0]


def most_trials(
    spec: KernelSpec,
    problem: Problem,
    space_size: int,
    *,
    quick: bool = False,
    device: bool = False,
    prior: bool = False,
) -> int:
    """How many first looks a search may take, beside a `prior` of a smaller n or without."""
    least = LEAST_TRIALS if quick or not device else LEAST_AFTER if prior else LEAST_ON_DEVICE
    share = LARGE_SHARE if is_large(spec, problem, device and prior) else SMALL_SHARE
    cap = max(least, math.ceil(space_size * share * (0.5 if quick else 1.0)))
    return min(space_size, cap)


class Costs(NamedTuple):
    """Seconds of a first look and of one sample in a race, both without building."""

    look_s: float
    sample_s: float


def costs(measured: Sequence[Measurement]) -> Costs | None:
    """What first looks cost, and what a sample in a race will, judged by them. None when none succeeded."""
    good = [m for m in measured if m.samples_ns]
    if not good:
        return None
    around_s = min(m.seconds - m.compile_s - m.kernel_s for m in good)  # the least: others also verified
    inside_s = statistics.median(m.kernel_s / len(m.samples_ns) for m in good)
    look_s = statistics.fmean(m.seconds - m.compile_s for m in good)
    return Costs(look_s, around_s + max(RACE_SAMPLE_S, inside_s))


def most_samples(large: bool, space_size: int, found: Costs | None) -> int:
    """How many samples a race may take over all its choices."""
    share = LARGE_RACE if large else SMALL_RACE
    worth = space_size * share * found.look_s / found.sample_s if found else 0.0
    return max(LEAST_RACED * LEAST_ROUNDS, math.ceil(worth))


def least_race_s(found: Costs | None) -> float:
    """Seconds that a race of the fewest finalists takes: a search that ran over its time still gets that much."""
    return 0.0 if found is None else LEAST_FINALISTS * LEAST_ROUNDS * found.sample_s


def affordable(found: Costs | None, seconds: float) -> float:
    """How many choices can be raced for the least number of rounds in the time."""
    if found is None or math.isinf(seconds):
        return math.inf
    return seconds / (found.sample_s * LEAST_ROUNDS)
