"""Reach: whether a problem can be looked at and raced in the time that is left, judged by the smaller ones.

A search that begins what it cannot end leaves nothing behind, and takes the time of whoever comes next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.device import is_device
from advisor.records import Problem, Verdict
from advisor.search import bounds
from advisor.search.run import Run
from advisor.search.seeds import call_s
from advisor.search.space import cpu_budget

LEAST_CALLS = 24
"""Calls of the best choice that an answer takes at least: a check, two warm-ups and a sample of a few first looks, and
three rounds of a race of three."""

LOOK_CALLS = 8
"""Calls that one first look may take: the check, two warm-ups, five samples; one that does not fit is killed."""


def within_reach(run: Run, problem: Problem) -> bool:
    """Whether there is time for an answer; always without a budget, and on a device, where calls are short."""
    if math.isinf(run.deadline) or is_device(run.request.machine.limits_id):
        return True
    call = expected_s(run, problem)
    left_s = run.deadline - run.clock()
    return _least(run) * call <= left_s and LOOK_CALLS * call <= run.request.options.trial_limit_s


def _least(run: Run) -> int:
    """Calls that there must be time for; a guess, before anything was raced, leaves out only what is sure to fail."""
    return LEAST_CALLS if run.verdicts else LOOK_CALLS


def expected_s(run: Run, problem: Problem) -> float:
    """Seconds that a call takes at least: by the race at the nearest smaller n; before there is one by what this many
    CPUs might do at best."""
    smaller = [verdict for verdict in run.verdicts if verdict.problem.n < problem.n]
    spec = run.request.spec
    if not smaller:
        return call_s(spec, problem) / cpu_budget(run.request.machine)
    near = max(smaller, key=lambda verdict: verdict.problem.n)
    return _best_s(near) * bounds.growth(spec, near.problem, problem)


def _best_s(verdict: Verdict) -> float:
    return min((s.summary.p25_ns * 1e-9 for s in verdict.standings if s.summary), default=0.0)


def beyond(run: Run, problems: Sequence[Problem]) -> str:
    """Why problems were left out, in words."""
    sizes = ", ".join(str(problem.n) for problem in problems)
    call = expected_s(run, problems[0])
    return f"n = {sizes} left out: a call takes {call:.2g} s or more, and there is no time for {_least(run)} of them"
