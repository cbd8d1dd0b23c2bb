"""Behind: which choices of a device are looked at late or never, judged by the looks at this n and at smaller ones.

A space of a device has plain mappings beside tuned ones, which take thirty to three hundred times the best. Each has
its look at a small n, where that is cheap; at larger n such looks would take the time that the best one's knobs need.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from advisor.kernels.spec import KernelSpec
from advisor.records import Choice, Problem
from advisor.search import bounds
from advisor.search.run import Run, value_of

FAR = 1.5
"""A variant that took so many times the best at a smaller n has no seed at the next larger one."""

HOPELESS = 4.0
"""One that takes at least so many times the best is not looked at: its own knobs bring less than that."""

LAUNCH_NS = 100e3
"""So much of a call may be launches, which do not grow with n: on an H200 libraries took up to 65 us where arithmetic
takes 1, and the one that was ten times behind at n = 256 was among the best at 8192."""

LOOK_CALLS, LONG_SHARE = 8, 1 / 10
"""Calls that a first look may take, and the share of a search's time that one which is far behind may take."""


class Expected(NamedTuple):
    """What a call of a variant takes in ns, at least and at most: `most` is where it grows as the work does."""

    least: float
    most: float


def expected(run: Run, problem: Problem, among: Collection[Choice] = ()) -> dict[str, Expected]:
    """What each variant takes at a problem, as far as looks tell.

    Its last look at a smaller n; what of that is not launches grows at least as the slower of traffic and arithmetic,
    and, where its mapping lacks nothing but speed, at most as the faster.

    Args:
        run: its looks at smaller n all count.
        problem: what is searched.
        among: the looks at the problem itself that count.
    """
    seen: dict[str, dict[Problem, float]] = {}
    for at in sorted((p for p in run.looks if p.n <= problem.n), key=lambda p: p.n):
        for choice, look in run.looks[at].items():
            value = value_of(look)
            if value is not None and (at != problem or choice in among):
                times = seen.setdefault(choice.build.variant, {})
                times[at] = min(value, times.get(at, value))
    return {variant: _grown(run.request.spec, times, problem) for variant, times in seen.items()}


def _grown(spec: KernelSpec, times: dict[Problem, float], problem: Problem) -> Expected:
    """From the looks of one variant, ascending in n."""
    last = max(times, key=lambda p: p.n)
    fixed = min(LAUNCH_NS, next(iter(times.values())), times[last])
    grows, rates = times[last] - fixed, (bounds.growth(spec, last, problem), bounds.most_growth(spec, last, problem))
    return Expected(*(fixed + grows * rate for rate in rates))


def hopeless(run: Run, problem: Problem, seeds: Iterable[Choice]) -> set[str]:
    """Variants that a search after a smaller n leaves out, judged by its seeds alone, as a resumed search must be."""
    looks = run.looks.get(problem, {})
    mine = {choice: value for choice in seeds if choice in looks and (value := value_of(looks[choice])) is not None}
    bar = HOPELESS * min(mine.values(), default=math.inf)
    return {variant for variant, one in expected(run, problem, mine).items() if one.least > bar}


def too_dear(run: Run, problem: Problem, known: dict[str, Expected], choice: Choice, seconds: float) -> bool:
    """Whether a seed is not worth its look: hopeless, or far behind and long.

    Args:
        run: its best look at the problem so far.
        problem, choice: what would be looked at.
        known: of smaller n.
        seconds: that the search has.
    """
    one, best_ns = known.get(choice.build.variant), run.best_ns.get(problem)
    if one is None or best_ns is None or one.most <= FAR * best_ns:
        return False
    return one.least > HOPELESS * best_ns or LOOK_CALLS * one.most * 1e-9 > LONG_SHARE * seconds


def in_order(run: Run, problem: Problem, seeds: Sequence[Choice], first: Collection[Choice]) -> list[Choice]:
    """The seeds as they are looked at after a smaller n.

    Those spoken for first, then the variants by what they take at least; what was never looked at is last, as listed.
    """
    least = {variant: one.least for variant, one in expected(run, problem).items()}

    def place(choice: Choice) -> tuple[bool, float]:
        return choice not in first, 0.0 if choice in first else least.get(choice.build.variant, math.inf)

    return sorted(seeds, key=place)


def far_behind(run: Run, problem: Problem) -> set[str]:
    """Variants whose best look at a problem took many times the best of all, but for the best of each tool.

    A library's call that was so far behind at a small n, where most is its launch, was the fastest at four times it.
    """
    timed = [(v, one.choice.build) for one in run.looks.get(problem, {}).values() if (v := value_of(one)) is not None]
    order = sorted(timed, key=lambda pair: (pair[0], pair[1].variant))
    best = {build.variant: value for value, build in reversed(order)}
    first = {build.compiler: build.variant for _, build in reversed(order)}
    limit = FAR * min(best.values(), default=math.inf)
    return {name for name, value in best.items() if value > limit} - {*first.values()}
