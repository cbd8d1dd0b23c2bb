"""What is counted on a device, and counting it: each mapping at one n, the largest for which there is time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.counters import LIMIT_S, MORE_TIME, Counted
from advisor.kernels.gpu.counts import NoCounters, predicted
from advisor.records import Problem
from advisor.search.samples import smooth_p25
from advisor.validate.device_lab import Kept, Lab
from advisor.validate.device_records import Count
from advisor.validate.plan import Cell
from advisor.validate.records import Series
from advisor.validate.roles import (
    BACKWARD_GK,
    FORWARD,
    KEPT,
    LANE,
    NAIVE_FREE,
    ONE_LANE,
    PACKED,
    RECOMPUTED,
    ROTATED,
    TILED,
    WARP_REDUCED,
    playing,
    role_of,
)
from advisor.validate.run import Job, Run

UNLIMITED_S = 1e9
"""Where nobody may count, asking for it costs nothing."""

COUNT_SHARE, MOST_COUNT_S = 0.4, 90.0
"""Of the time for both, what is kept for counters: a share, and so long at most."""

COUNT_SIZES = (4096, 2048, 1024, 512, 256)
"""Where the chain may be counted, the best first: from n = 4096 on the L2 does not hide the writes of forward, and the
paper counted at 2048 and 4096. The ratio of atomics is the same at every n, so slow mappings are counted at smaller
ones."""

BLOCK_COUNT_N = 256
"""Source: Mullin and Hains, section 6.3."""

COUNT_CALLS = 15
"""Calls that counting costs: the check, three that warm up, three that are counted, one pass each, and the flushing and
putting back between them."""

EXPLAIN_FIRST = ("fused", "backward", "forward")
"""Kernels in the order in which their times want explaining."""

EXPLAIN_N, EXPLAIN_CALLS = 512, 60
"""Where that is counted, and the calls that it costs."""

COUNT_START_S = 9.0
"""A program under ncu imports, compiles and checks before it counts. An expectation: on an H200 with cold caches 13 s
were too short for forward's start and five counts."""

COUNT_FIRST = ("forward", "backward", "fused", "block")
"""Kernels in the order in which counters are worth their program's start; the ratio of atomics needs the second and
the third."""

START_SHARE = 0.7
"""Of the time for counting, what starts of programs may take."""

COUNT_SHARES = {"block": 0.1, TILED: 0.05, FORWARD: 0.15, LANE: 0.2, ONE_LANE: 0.15, PACKED: 0.35}
"""Group -> its share of the time for counting; what one leaves falls to the next, the dearest are last."""


class Wanted(NamedTuple):
    """One cell to count at one problem, and the seconds that this is expected to take."""

    problem: Problem
    cell: Cell
    cost_s: float


def worth_counting(kernels: Sequence[str], seconds: float) -> tuple[str, ...]:
    """The kernels whose programs can be started in so many seconds with time left to count."""
    ordered = [kernel for kernel in COUNT_FIRST if kernel in kernels]
    return tuple(ordered[: _starts(seconds)])


def _starts(seconds: float) -> int:
    """Programs that can be started in so many seconds with time left to count."""
    return max(0, int(START_SHARE * seconds / COUNT_START_S))


def count_group(kernel: str, name: str) -> str | None:
    """What is counted together, at one n: forward, a mapping of the gradients, the block. None: it is not counted.

    Of packed rows, what computes weights again is left out: it costs most and no finding of the paper is about it.
    """
    if kernel == "block":
        return kernel
    role = role_of(kernel, name)
    if role is None:
        return None
    if role.part == FORWARD:
        return FORWARD
    if role.mapping == PACKED and (role.form == RECOMPUTED or role.part == NAIVE_FREE):
        return None
    return PACKED if role.mapping in (ROTATED, WARP_REDUCED) else role.mapping


def to_count(
    cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series], seconds: float
) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """What is counted in so many seconds: each group at the largest n that fits, all of its cells or none.

    Args:
        cells: those of each problem.
        series: what ran; what did not is not counted.
        seconds: for counting alone, starts of programs not included.

    Returns:
        What is counted; the groups for which there is no time.
    """
    groups = _groups(cells, series)
    chosen: list[Wanted] = []
    spare = 0.0
    for group, share in COUNT_SHARES.items():
        room = share * seconds + spare
        options = [(sum(w.cost_s for w in listed), listed) for n, listed in groups.get(group, [])]
        cost, taken = next((option for option in options if option[0] <= room), (0.0, []))
        chosen += taken
        spare = room - cost
    taken_groups = {count_group(w.problem.kernel, w.cell.name) for w in chosen}
    return (*chosen, *_beside_packed(groups, chosen)), tuple(group for group in groups if group not in taken_groups)


def _groups(
    cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series]
) -> dict[str, list[tuple[int, list[Wanted]]]]:
    """Group -> (n, what is counted there), the best n first."""
    times = {(one.problem, one.variant): smooth_p25(one.samples_ns) for one in series if one.samples_ns}
    found: dict[str, dict[int, list[Wanted]]] = {}
    for problem, listed in cells.items():
        for one in listed:
            group, ns = count_group(problem.kernel, one.name), times.get((problem, one.name))
            if group is not None and ns is not None:
                wanted = Wanted(problem, one, COUNT_CALLS * ns * 1e-9)
                found.setdefault(group, {}).setdefault(problem.n, []).append(wanted)
    return {group: [(n, by_n[n]) for n in _sizes(group, by_n)] for group, by_n in found.items()}


def _sizes(group: str, by_n: Mapping[int, Sequence[Wanted]]) -> list[int]:
    """Where a group may be counted, the best first: where most of its cells ran."""
    most = max(map(len, by_n.values()))
    whole = [n for n, listed in by_n.items() if len(listed) == most]
    listed = (BLOCK_COUNT_N,) if group == "block" else COUNT_SIZES
    return [n for n in listed if n in whole] or [max(whole)]


def _beside_packed(groups: Mapping[str, list[tuple[int, list[Wanted]]]], chosen: Sequence[Wanted]) -> list[Wanted]:
    """Backward by lanes at the n where packed rows are counted: the same count of atomics, another address pattern."""
    sizes = {w.problem.n for w in chosen if count_group(w.problem.kernel, w.cell.name) == PACKED}
    patterns = {role.name for role in playing(BACKWARD_GK, LANE) if role.form == KEPT}
    known = {(w.problem, w.cell.name) for w in chosen}
    return [
        w
        for _, listed in groups.get(LANE, [])
        for w in listed
        if w.problem.n in sizes and w.cell.name in patterns and (w.problem, w.cell.name) not in known
    ]


def count_chain(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, until: float) -> None:
    """Count each kernel in a program of its own; then, if there is time, what warps of the same variants wait for."""
    seconds = min(until - run.clock(), MOST_COUNT_S) if lab.can_count else UNLIMITED_S
    named = {job.kernel: job for job in jobs if job.kernel in worth_counting([job.kernel for job in jobs], seconds)}
    run.found.missing += [f"counters of {job.kernel}: no time" for job in jobs if job.kernel not in named]
    own_cells = {problem: run.wanted[problem] for job in named.values() for problem in job.problems}
    seconds -= COUNT_START_S * len(named)
    wanted, left_out = to_count(own_cells, run.found.series, max(0.0, seconds))
    run.found.missing += [f"counters of {group}: no time" for group in left_out]
    _programs(run, Asked(named, wanted, ncu.CORE, kept.counts), lab, kept, until)
    if lab.can_count and not kept.uncounted:
        _explain(run, named, wanted, lab, kept, until)


def _explain(run: Run, named: dict[str, Job], wanted: Sequence[Wanted], lab: Lab, kept: Kept, until: float) -> None:
    """Count sectors and waits in as many programs as there is time for."""
    seconds = min(until - run.clock(), MOST_COUNT_S)
    chain = {kernel: named[kernel] for kernel in EXPLAIN_FIRST[: _starts(seconds)] if kernel in named}
    cells = {problem: run.wanted[problem] for job in chain.values() for problem in job.problems}
    picked = to_explain(wanted, cells, run.found.series, seconds - COUNT_START_S * len(chain))
    _programs(run, Asked(chain, picked, ncu.DETAIL, kept.waits), lab, kept, until)


class Asked(NamedTuple):
    """Some programs under ncu: of these kernels, what is counted, by which metrics, and where it goes."""

    jobs: dict[str, Job]
    wanted: Sequence[Wanted]
    metrics: tuple[ncu.Metric, ...]
    into: list[Count]


def to_explain(
    wanted: Sequence[Wanted], cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series], seconds: float
) -> tuple[Wanted, ...]:
    """What was counted once more at EXPLAIN_N, as far as so many seconds go, the cheapest first: a profiler runs a
    kernel many times for what its warps wait for."""
    names = {(w.problem.kernel, w.cell.name) for w in wanted}
    times = {(one.problem, one.variant): smooth_p25(one.samples_ns) for one in series if one.samples_ns}
    found = [
        Wanted(problem, one, EXPLAIN_CALLS * times[problem, one.name] * 1e-9)
        for problem, listed in cells.items()
        for one in listed
        if problem.n == EXPLAIN_N and (problem.kernel, one.name) in names and (problem, one.name) in times
    ]
    ordered = sorted(found, key=lambda w: w.cost_s)
    spent = itertools.accumulate(w.cost_s for w in ordered)
    return tuple(w for w, total in zip(ordered, spent, strict=True) if total <= seconds)


def _programs(run: Run, asked: Asked, lab: Lab, kept: Kept, until: float) -> None:
    """A program a kernel, the cheapest first; each gets the part of what is left that it is expected to need."""
    costs = {
        kernel: COUNT_START_S + sum(w.cost_s for w in asked.wanted if w.problem.kernel == kernel)
        for kernel in asked.jobs
        if any(w.problem.kernel == kernel for w in asked.wanted)
    }
    run.progress.stage("counters", len(costs))
    while costs:
        kernel = min(costs, key=lambda name: costs[name])
        limit_s = max(0.0, until - run.clock()) * costs[kernel] / sum(costs.values())
        del costs[kernel]
        _count_kernel(run, asked, kernel, lab, kept, limit_s)
        run.progress.advance(kernel)


def _count_kernel(run: Run, asked: Asked, kernel: str, lab: Lab, kept: Kept, limit_s: float) -> None:
    """Count some cells of one kernel, the cheapest first: what a program has no time for is told without figures."""
    job = asked.jobs[kernel]
    if lab.can_count and limit_s < COUNT_START_S:
        run.found.missing.append(f"counters of {kernel}: no time ({limit_s:.0f} s)")
        return
    ordered = sorted((w for w in asked.wanted if w.problem.kernel == kernel), key=lambda one: one.cost_s)
    cold = [(one.problem._replace(regime="cold"), one.cell.choice) for one in ordered]
    limit_s = min(LIMIT_S, limit_s) if lab.can_count else LIMIT_S
    outcomes = lab.counting(job.spec, job.variants, cold, limit_s, asked.metrics)
    failed: dict[str, list[str]] = {}
    for one, outcome in zip(ordered, outcomes, strict=True):
        asked.into.append(_counted(job, one.problem, one.cell, outcome))
        if isinstance(outcome, NoCounters):
            if outcome.everywhere and outcome.remedy != MORE_TIME:
                kept.uncounted, kept.remedy = outcome.reason, outcome.remedy
            else:
                failed.setdefault(outcome.reason, []).append(f"{one.cell.name} n={one.problem.n}")
    run.found.missing += [f"counters of {kernel}: {', '.join(of)}: {reason}" for reason, of in failed.items()]


def _counted(job: Job, problem: Problem, one: Cell, outcome: Counted) -> Count:
    beside = predicted(job.spec, one.variant, problem, one.choice)
    where = (job.kernel, one.name, problem.n)
    if isinstance(outcome, NoCounters):
        return Count(*where, None, (), beside, outcome.reason)
    return Count(*where, outcome.call, outcome.kernels, beside, seconds=outcome.seconds)
