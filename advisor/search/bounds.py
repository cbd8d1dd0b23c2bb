"""Bounds: which choices cannot win and are not worth a first look.

Two arguments, both from times already measured. Threads: a team cannot do more than its threads times what a thread was
seen to do at best. Process parts: how threads wait costs a call a fixed time, so a part that did not win at a smaller n
does not win at a larger one; one choice of it is looked at all the same, for whoever runs under that part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from advisor.kernels.spec import KernelSpec
from advisor.records import Choice, Machine, Measurement, Problem
from advisor.search.run import value_of

SLACK = 0.6
"""A thread may do 1 / 0.6 of the best that was seen: caches that several threads have together, builds not yet seen.

What was seen must be more than a few looks, or a slow build stands for all: it is the search at a smaller n."""

REACH = 1.05
"""Nothing is skipped that may come within 5 % of the best: of equals the one with fewer threads is wanted."""


class Work(NamedTuple):
    """Thread-time of one call, the least that was seen with each number of threads: (threads, ns), ascending."""

    problem: Problem
    least: tuple[tuple[int, float], ...] = ()


def threads_of(choice: Choice) -> int:
    """Threads of its team; 1 without one."""
    return choice.team.threads if choice.team else 1


def seen(problem: Problem, measured: Iterable[Measurement]) -> Work:
    """What first looks say of the work of a call; nothing on a device, where most of a small call is its launch."""
    least: dict[int, float] = {}
    for one in measured:
        value = value_of(one)
        if value is not None and one.choice.team is not None:
            threads = threads_of(one.choice)
            least[threads] = min(threads * value, least.get(threads, math.inf))
    return Work(problem, tuple(sorted(least.items())))


def grown(work: Work, spec: KernelSpec, problem: Problem) -> Work:
    """The work at a larger n as far as it is certain: it grows at least as the slower of traffic and arithmetic.

    Nothing is known of a smaller n, where what is fixed in a call weighs more.
    """
    if problem.n < work.problem.n:
        return Work(problem)
    factor = growth(spec, work.problem, problem)
    return Work(problem, tuple((threads, ns * factor) for threads, ns in work.least))


def growth(spec: KernelSpec, small: Problem, large: Problem) -> float:
    """The lesser of the ratios of traffic and of arithmetic between two problems."""
    traffic = sum(spec.elements(large)) / sum(spec.elements(small))
    return float(min(traffic, spec.flops(large) / spec.flops(small)))


def most_growth(spec: KernelSpec, small: Problem, large: Problem) -> float:
    """The greater of the ratios of traffic and of arithmetic between two problems."""
    traffic = sum(spec.elements(large)) / sum(spec.elements(small))
    return float(max(traffic, spec.flops(large) / spec.flops(small)))


def joined(*works: Work) -> Work:
    """All that several say of one problem."""
    least: dict[int, float] = {}
    for threads, ns in (pair for work in works for pair in work.least):
        least[threads] = min(ns, least.get(threads, math.inf))
    return Work(works[0].problem, tuple(sorted(least.items())))


def bound_ns(work: Work, threads: int) -> float:
    """Time under which no team of so many threads comes; 0 unless a team of at most as many was seen.

    A thread of a larger team may be slowed by the others (bandwidth that they share), and says nothing alone.
    """
    if not work.least or work.least[0][0] > threads:
        return 0.0
    return SLACK * min(ns for _, ns in work.least) / threads


def comparable(machine: Machine) -> bool:
    """Whether the threads of this machine are alike: on one with several kinds of cores a thread says little."""
    return len(machine.core_classes) < 2


def hopeless(choice: Choice, work: Work, best_ns: float) -> bool:
    """Whether a choice cannot come near the best because it has too few threads."""
    return bound_ns(work, threads_of(choice)) > REACH * best_ns


def twins(choices: Sequence[Choice], of: Choice) -> tuple[Choice, ...]:
    """The same build and team under every other process part that is listed."""
    return tuple(c for c in choices if (c.build, c.team) == (of.build, of.team) and c.process != of.process)
