"""A chosen configuration runs once more in a fresh process before a table says it: what won in a worker that had run
for minutes may fail in one that starts anew."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from advisor.records import Choice, Measurement, Problem, Section, Table
from advisor.search.known import FAILED, Failed, same_program, without
from advisor.search.request import Outcome, Progress
from advisor.search.run import Clock
from advisor.words import many

LEAST_S = 1.0
"""No check starts with less time left: a worker alone takes a good part of it to start."""

MOST_PASSES = 3
"""So often what comes up in the place of a dropped choice is checked in its turn."""


Choose = Callable[[Section, int], Choice]


class Checker(Protocol):
    """What runs a choice once: a WorkerPool in which nothing has run yet."""

    def check(self, problem: Problem, choice: Choice, limit_s: float) -> Measurement:
        """Compare one choice with the DNF on one problem."""


class Recheck(NamedTuple):
    """What is checked, and within which limits.

    Attributes:
        learn: the table of an outcome; None where no race of it is left.
        choose: what a section says at n.
        problems: of this run. What a table has from earlier runs was checked by them.
        limit_s: wall-clock limit of one check.
        until: on the clock; no check starts in the last second before it. None: no limit.
        record: is told every check.
        earlier: checks of earlier runs in the same conditions; what passed there is not run again up to that n.
    """

    learn: Callable[[Outcome], Table | None]
    choose: Choose
    problems: tuple[Problem, ...]
    limit_s: float
    until: float | None
    record: Callable[[Measurement], None]
    earlier: Sequence[Measurement] = ()


class Checked(NamedTuple):
    """Outcome and table without the choices that failed, and whether Ctrl-C ended the checks."""

    outcome: Outcome
    table: Table | None
    interrupted: bool = False


def recheck(
    checker: Checker,
    plan: Recheck,
    outcome: Outcome,
    table: Table,
    progress: Progress,
    clock: Clock = time.monotonic,
) -> Checked:
    """Run every distinct winner once and learn anew without those that fail.

    A check that could not run, for want of time or of memory just now, speaks against nothing. Whatever else goes
    wrong, the table stays.

    Returns:
        What is left, with a note on each choice that was dropped or not checked.
    """
    passed = sorted((m for m in plan.earlier if m.status == "ok"), key=lambda m: m.problem.n)
    done: dict[Choice, Measurement] = {same_program(m.choice): m for m in passed}
    loading = loading_s(outcome.trials)
    left = Checked(outcome, table)
    try:
        for _ in range(MOST_PASSES):
            won = winners(left.table, plan.problems, plan.choose).items()
            new = {one: at for one, at in won if one not in done or _is_new(at, done[one])}
            found = _checks(checker, plan, new, progress, clock, loading)
            done.update(found)
            failed = {(m.problem, same_program(choice)) for choice, m in found.items() if m.status in FAILED}
            left = _noted(left, new, found)
            if not failed:
                return left
            left = _learned(plan, left, failed)
    except KeyboardInterrupt:
        return left._replace(interrupted=True)
    except Exception as error:  # a check that breaks must not cost the table that hours of measuring made
        return _with_note(left, f"the winners were not all run again in a fresh process: {error}")
    return _with_note(left, f"after {many(MOST_PASSES, 'round')} of failures the last winners were not run again")


def _is_new(problem: Problem, before: Measurement) -> bool:
    """Whether a check elsewhere leaves this problem open: one that passed speaks for all smaller ones too."""
    return problem.n > before.problem.n if before.status == "ok" else problem != before.problem


def winners(table: Table | None, problems: Sequence[Problem], choose: Choose) -> dict[Choice, Problem]:
    """Each distinct choice that the table gives at one of the problems, with the largest: it needs the most memory.

    Those in front are the best of all process parts at some n: where time is short, they are what may land.
    """
    found: dict[Choice, Problem] = {}
    leading = set()
    for problem in sorted(problems, key=lambda one: one.n):
        for section in () if table is None else table.sections:
            here = (section.dtype, section.shape, section.regime) == (problem.dtype, problem.shape, problem.regime)
            if here and problem.n in section.tuned_n:
                one = same_program(choose(section, problem.n))
                found[one] = problem
                leading |= {one} if problem.n in dict(section.wins).get(section.objective, ()) else set()
    return dict(sorted(found.items(), key=lambda item: item[0] not in leading))


def loading_s(trials: Sequence[Measurement]) -> dict[str, float]:
    """Seconds that each tool of a device takes to load, by its first look; a fresh process loads it again.

    Where there is no time for that, its check would end nowhere and take the time of what comes after.
    """
    found: dict[str, float] = {}
    for trial in trials:
        if trial.choice.team is None:
            found.setdefault(trial.choice.build.compiler, trial.seconds - trial.compile_s - trial.kernel_s)
    return found


def _checks(
    checker: Checker,
    plan: Recheck,
    new: dict[Choice, Problem],
    progress: Progress,
    clock: Clock,
    loading: dict[str, float],
) -> dict[Choice, Measurement]:
    """One check each, while there is time. A limit that only the budget cut short does not count as a hang.

    `loading`: seconds of each tool that is not loaded yet; those that this loads are taken out.
    """
    found: dict[Choice, Measurement] = {}
    if new:
        progress.stage("winners in a fresh process", len(new))
    for choice, problem in new.items():
        left_s = math.inf if plan.until is None else plan.until - clock()
        if left_s < max(LEAST_S, loading.get(choice.build.compiler, 0.0)):
            continue
        loading.pop(choice.build.compiler, None)
        measurement = checker.check(problem, choice, min(plan.limit_s, left_s))
        ended = plan.until is not None and clock() >= plan.until
        if measurement.status == "timeout" and (left_s < plan.limit_s or ended):
            measurement = measurement._replace(status="skipped", reason="the time was used before its check ended")
        plan.record(measurement)
        progress.advance(f"{choice.build.variant} at n = {problem.n}: {measurement.status}")
        found[choice] = measurement
    return found


def _noted(left: Checked, new: dict[Choice, Problem], found: dict[Choice, Measurement]) -> Checked:
    for choice, measurement in found.items():
        if measurement.status != "ok":
            what = "dropped" if measurement.status in FAILED else "not checked"
            name = f"{choice.build.variant} at n = {measurement.problem.n}"
            why = " ".join(measurement.reason.split())[-200:]
            left = _with_note(left, f"{name}: {what}, {measurement.status} in a fresh process ({why})")
    missed = len(new) - len(found)
    return _with_note(left, f"no time to run {missed} of the winners again in a fresh process") if missed else left


def _learned(plan: Recheck, left: Checked, failed: Failed) -> Checked:
    verdicts = without(left.outcome.verdicts, failed)
    trials = tuple(t for t in left.outcome.trials if (t.problem, same_program(t.choice)) not in failed)
    outcome = left.outcome._replace(verdicts=verdicts, trials=trials)
    return left._replace(outcome=outcome, table=plan.learn(outcome))


def _with_note(left: Checked, note: str) -> Checked:
    return left._replace(outcome=left.outcome._replace(notes=(*left.outcome.notes, note)))
