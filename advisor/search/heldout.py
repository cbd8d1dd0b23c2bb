"""Held-out races: how good is what a table says at n that were not tuned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from advisor.kernels.executor import Executor
from advisor.records import Choice, Problem, Verdict
from advisor.search.log import Log
from advisor.search.race import Heat
from advisor.search.request import Progress, Request, Silent
from advisor.search.run import Clock, Limits, Run
from advisor.search.seeds import seeds
from advisor.search.space import default_choice, space

NEIGHBOURS = 2
"""Tuned n whose standings give rivals: the nearest on either side."""

LEAST_S = 1.0
"""No race starts with less time left: starting workers and checking the choices at another n takes most of it."""

RIVALS = 3
"""Best standings of each neighbouring n that race."""


class HoldOut(NamedTuple):
    """What is judged.

    Attributes:
        pick: what the table says at a problem.
        problems: at n that were not tuned.
        verdicts: of the tuning; their final standings give the rivals.
        until: on the clock; no race starts in the last second before it. None: no limit.
    """

    pick: Callable[[Problem], Choice]
    problems: tuple[Problem, ...]
    verdicts: tuple[Verdict, ...]
    until: float | None = None


class Held(NamedTuple):
    """One verdict a problem that could be raced in time, and whether Ctrl-C ended it early."""

    verdicts: tuple[Verdict, ...]
    interrupted: bool


def hold_out(
    request: Request,
    executor: Executor,
    log: Log,
    plan: HoldOut,
    progress: Progress | None = None,
    clock: Clock = time.monotonic,
) -> Held:
    """Race the table's picks at n that were not tuned, with fresh samples.

    Rivals: the best standings at the neighbouring tuned n, the DEFAULT, and what the traffic is worth. The regret of
    the pick is its ratio in the verdict over the lowest ratio there.

    Args:
        request: of the tuning; its session goes on.
        executor, log: as for `tune`.
        plan: picks and problems.
        progress, clock: as for `tune`.

    Returns:
        The verdicts of those that could be raced in time.
    """
    unbounded = request._replace(options=request.options._replace(budget_s=None))
    run = Run(unbounded, executor, log, progress or Silent(), clock)
    until = math.inf if plan.until is None else plan.until
    interrupted = False
    try:
        run.progress.stage("held-out n", len(plan.problems))
        for problem in plan.problems:
            if run.out_of_time(until - LEAST_S):
                break
            run.verdicts += _race(run, problem, plan, until)
            run.progress.advance(f"n={problem.n}")
    except KeyboardInterrupt:
        interrupted = True
    log.sync()
    return Held(tuple(run.verdicts), interrupted)


def _race(run: Run, problem: Problem, plan: HoldOut, until: float) -> list[Verdict]:
    request = run.request
    ground = (request.machine, request.spec, request.variants, problem, request.options.space)
    listed, default = space(*ground), default_choice(*ground)
    known = set(listed)
    near = [choice for choice in _near(problem, plan.verdicts) if choice in known]
    guesses = seeds(request.spec, problem, listed, default, near)
    choices = tuple(dict.fromkeys((plan.pick(problem), *near, *guesses)))
    run.prepare(problem, choices)
    verdict, _ = run.race(Heat(problem, choices, default, "heldout"), Limits(until))
    return [verdict] if verdict else []


def _near(problem: Problem, verdicts: Sequence[Verdict]) -> list[Choice]:
    """The best standings of the final verdicts at the nearest tuned n on the log axis."""
    finals = sorted(
        (v for v in verdicts if v.purpose == "final"), key=lambda v: abs(math.log(v.problem.n / problem.n))
    )[:NEIGHBOURS]
    return [s.choice for v in finals for s in v.standings[:RIVALS] if s.summary is not None]
