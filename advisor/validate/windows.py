"""The stolen core: decode quiet, then beside one busy neighbour, as means of all calls over windows of time.

Nothing is rejected, and the mean counts: most calls are fast, and a few stalls take most of the time
(docs/traps/spinning-and-a-stolen-core.md).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

from advisor.records import Machine, Problem, Team
from advisor.search import protocol
from advisor.search.space import cpu_budget
from advisor.search.stolen import neighbour_cpu
from advisor.topology.placement import UNPINNED
from advisor.validate.plan import Cell, cell, teams_of, usable
from advisor.validate.records import Window
from advisor.validate.run import Job, Run

LIMIT_S = 30.0

SHORT_S = 60.0
"""Budgets under this get short windows beside the neighbour."""

WINDOW_CELL_S = 0.4
"""Beside the window itself: start, check, warm-up."""


def window_teams(machine: Machine) -> tuple[Team, ...]:
    """Half of the CPUs, all but one, all; pinned, and all once more not pinned."""
    most = cpu_budget(machine)
    counts = sorted({max(1, most // 2), max(1, most - 1), most})
    free = [Team(most, UNPINNED)] if most > 1 else []
    return (*teams_of(machine, counts), *free)


def spread_order(sizes: Sequence[int]) -> tuple[int, ...]:
    """Sizes in the order in which they tell most: first, last, then always one in the middle of the widest gap."""
    left, taken = list(sizes), []
    if left:
        taken = [left[0], *left[-1:]] if len(left) > 1 else [left[0]]
    while len(taken) < len(left):
        index = {n: i for i, n in enumerate(left)}
        known = sorted(index[n] for n in taken)
        gaps = [(b - a, -a, a, b) for a, b in itertools.pairwise(known)]
        _, _, a, b = max(gaps)
        taken.append(left[(a + b) // 2])
    return tuple(taken)


def windows(run: Run, job: Job, until: float) -> None:
    """Each team quiet, then beside one busy neighbour, at as many n as there is time for."""
    quick = run.budget_s < SHORT_S
    window_s = protocol.QUICK_WINDOW_S if quick else protocol.WINDOW_S
    crowd = window_teams(run.machine)
    cost_s = 2 * len(crowd) * (window_s + WINDOW_CELL_S)
    order = spread_order([p.n for p in job.problems])
    count = max(0, int((until - run.clock()) / cost_s))
    known = {problem.n: problem for problem in job.problems}
    run.progress.stage("stolen core", min(count, len(order)))
    job.pool.until = run.end
    done: set[int] = set()
    for n in order[:count]:
        begun = run.clock()
        if done and begun + cost_s > until:
            break
        _windows_at(run, job, known[n], quick)
        cost_s = max(cost_s, run.clock() - begun)
        done.add(n)
        run.progress.advance(f"n={n}")
    if len(done) < len(order):
        left = ", ".join(str(n) for n in sorted(set(order) - done))
        run.found.missing.append(f"stolen core: no time for n = {left} (about {cost_s:.0f} s each)")


def _windows_at(run: Run, job: Job, problem: Problem, quick: bool) -> None:
    first = next((v for v in usable(job.variants, run.machine) if cell(v, problem, Team(1, ""), run.options)), None)
    if first is None:
        return
    wanted = [one for team in window_teams(run.machine) if (one := cell(first, problem, team, run.options))]
    for beside in (False, True):
        with job.pool.disturbed(neighbour_cpu(run.machine)) if beside else contextlib.nullcontext():
            for one in wanted:
                if run.clock() >= run.end:
                    run.found.missing.append(f"stolen core n={problem.n}: the time ended within it")
                    return
                _window(run, job, problem, (one, beside), quick)


def _window(run: Run, job: Job, problem: Problem, where: tuple[Cell, bool], quick: bool) -> None:
    """One window, as long as the samples together; the first call of all, which also checks, is not timed."""
    one, beside = where
    found = job.pool.check(problem, one.choice, run.patience_s(LIMIT_S))
    if found.status == "ok":
        found = job.pool.measure(problem, one.choice, protocol.window(quick, run.patience_s(LIMIT_S)))
    if found.status != "ok":
        name = f"{one.threads}T {'beside a busy neighbour' if beside else 'quiet'}"
        run.found.missing.append(f"stolen core n={problem.n}, {name}: {found.status}: {found.reason}")
        return
    ordered = sorted(found.samples_ns)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    mean = sum(ordered) / len(ordered)
    run.found.windows.append(
        Window(problem, one.variant.name, one.threads, one.pinned, beside, mean, p99, len(ordered))
    )
