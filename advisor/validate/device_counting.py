"""What is counted on a device, and counting it: one program under the profiler for all kernels, what the findings need
most first; a second one for what explains it, if there is time."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advisor.errors import AdvisorError, BadInput
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.counters import LEAST_S, MORE_TIME, Came, Counted, Source
from advisor.kernels.gpu.counts import NoCounters, predicted
from advisor.kernels.gpu.profiled import Start
from advisor.records import Problem
from advisor.search.samples import smooth_p25
from advisor.validate.device_lab import Kept, Lab
from advisor.validate.device_records import Count, Program
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

LEAST_COUNT_S = 13.0
"""Of a budget whose share is shorter nothing is kept: so long was too short to start and count in on an H200."""

COUNT_SIZES = (4096, 2048, 1024, 512, 256)
"""Where the chain may be counted, the best first: from n = 4096 on the L2 does not hide the writes of forward, and the
paper counted at 2048 and 4096. The ratio of atomics is the same at every n, so slow mappings are counted at smaller
ones."""

FORWARD_N = 8192
"""Where forward is counted too, after all else, if there is time."""

BLOCK_COUNT_SIZES = (4096, 256)
"""Where the block may be counted, the best first: as forward, and where the paper counted it. What lies between its
kernels is a few MB at either, so that the L2 keeps writes uncounted. Source: Mullin and Hains, section 6.3."""

COUNT_CALLS, ROW_S = 8, 0.5
"""What counting one choice is taken to cost: calls (the check, three that warm up, one that is timed, one of a slow
choice that is counted, and room for a pass more), and operands with their reference. An expectation that picks sizes:
the program that counts stops by itself."""

EXPLAIN_N = 512
"""Where what explains a count is counted."""

EXPLAIN_FIRST = ("forward", "fused", "backward")
"""Kernels in the order in which their times want explaining: forward has the finding on sectors, and few variants."""

COUNT_SHARES = {FORWARD: 0.25, "block": 0.05, LANE: 0.3, ONE_LANE: 0.15, PACKED: 0.2, TILED: 0.05}
"""Group -> its share of the time for counting, in the order in which the findings need them: M_fwd, M_block, the steps
of GV and GK, the ratio of atomics, both again in the slow mapping. What one leaves falls to the next."""


class Wanted(NamedTuple):
    """One cell to count at one problem, and the seconds that this is expected to take."""

    problem: Problem
    cell: Cell
    cost_s: float


def reserve_s(seconds: float, tried: Start | NoCounters | None) -> float:
    """Of so many seconds those that are kept for counters: none where an attempt did not get any.

    Args:
        seconds: for times and counters.
        tried: the attempt.
    """
    return min(COUNT_SHARE * seconds, MOST_COUNT_S) if isinstance(tried, Start) else 0.0


def worth_trying(seconds: float) -> bool:
    """Whether so many seconds for times and counters have a share for counters in which something can be counted."""
    return min(COUNT_SHARE * seconds, MOST_COUNT_S) >= LEAST_COUNT_S


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
) -> tuple[tuple[Wanted, ...], tuple[Wanted, ...]]:
    """What is counted in so many seconds: each group at the largest n that fits, all of its cells or none.

    Args:
        cells: those of each problem.
        series: what ran; what did not is not counted.
        seconds: for counting alone, the start of the program not included.

    Returns:
        What is counted, in the order in which it is wanted, the cheapest of a group first; of the groups that do not
        fit what is cheapest, to be counted last, if all else was quicker than expected.
    """
    groups = _groups(cells, series)
    listed = {group: groups[group] for group in COUNT_SHARES if group in groups}
    taken, left_s = _shared(listed, seconds)
    for group, options in listed.items():  # what the last ones left
        if not taken[group]:
            taken[group] = _largest(options, left_s)
            left_s -= _cost_s(taken[group])
    chosen = [w for group in listed for w in sorted(taken[group], key=lambda w: w.cost_s)]
    late = [w for group, options in listed.items() if not taken[group] for w in options[-1][1]]
    more = (*_beside_packed(groups, chosen), *_larger(cells, series, chosen, left_s))
    return (*chosen, *more), tuple(sorted(late, key=lambda w: w.cost_s))


Options = list[tuple[int, list[Wanted]]]
"""(n, what is counted there), the best n first."""


def _shared(groups: Mapping[str, Options], seconds: float) -> tuple[dict[str, list[Wanted]], float]:
    """What each group takes of its share of what is left when it comes to it; the seconds that all leave."""
    taken, names, left_s = {}, list(groups), seconds
    for index, group in enumerate(names):
        share = COUNT_SHARES[group] / sum(COUNT_SHARES[other] for other in names[index:])
        taken[group] = _largest(groups[group], share * left_s)
        left_s -= _cost_s(taken[group])
    return taken, left_s


def _largest(options: Options, seconds: float) -> list[Wanted]:
    """The first that fits, none where none does."""
    return next((listed for _, listed in options if _cost_s(listed) <= seconds), [])


def _cost_s(wanted: Sequence[Wanted]) -> float:
    return sum(w.cost_s for w in wanted)


def _groups(cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series]) -> dict[str, Options]:
    """Group -> where it may be counted."""
    found: dict[str, dict[int, list[Wanted]]] = {}
    for one in _timed(cells, series):
        group = count_group(one.problem.kernel, one.cell.name)
        if group is not None:
            found.setdefault(group, {}).setdefault(one.problem.n, []).append(one)
    return {group: [(n, by_n[n]) for n in _sizes(group, by_n)] for group, by_n in found.items()}


def _timed(cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series]) -> list[Wanted]:
    """All that ran, each with what counting it is expected to cost."""
    times = {(one.problem, one.variant): smooth_p25(one.samples_ns) for one in series if one.samples_ns}
    return [
        Wanted(problem, one, ROW_S + COUNT_CALLS * times[problem, one.name] * 1e-9)
        for problem, listed in cells.items()
        for one in listed
        if (problem, one.name) in times
    ]


def _larger(
    cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series], chosen: Sequence[Wanted], seconds: float
) -> list[Wanted]:
    """Forward at FORWARD_N, of what was chosen at the size before it, as far as so many seconds go."""
    names = {w.cell.name for w in chosen if w.problem.kernel == "forward" and 2 * w.problem.n == FORWARD_N}
    timed = [w for w in _timed(cells, series) if w.problem.kernel == "forward" and w.problem.n == FORWARD_N]
    return within(sorted((w for w in timed if w.cell.name in names), key=lambda w: w.cost_s), seconds)


def within(wanted: Sequence[Wanted], seconds: float) -> list[Wanted]:
    """The first of these that so many seconds suffice for."""
    spent = itertools.accumulate(w.cost_s for w in wanted)
    return [w for w, total in zip(wanted, spent, strict=True) if total <= seconds]


def _sizes(group: str, by_n: Mapping[int, Sequence[Wanted]]) -> list[int]:
    """Where a group may be counted, the best first: where most of its cells ran."""
    most = max(map(len, by_n.values()))
    whole = [n for n, listed in by_n.items() if len(listed) == most]
    listed = BLOCK_COUNT_SIZES if group == "block" else COUNT_SIZES
    return [n for n in listed if n in whole] or [max(whole)]


def _beside_packed(groups: Mapping[str, Options], chosen: Sequence[Wanted]) -> list[Wanted]:
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


def to_explain(
    wanted: Sequence[Wanted], cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series]
) -> tuple[Wanted, ...]:
    """What was counted once more at EXPLAIN_N, by kernels as EXPLAIN_FIRST has them, the cheapest of each first."""
    names = {(w.problem.kernel, w.cell.name) for w in wanted}
    found = [
        w
        for w in _timed(cells, series)
        if w.problem.n == EXPLAIN_N and w.problem.kernel in EXPLAIN_FIRST and (w.problem.kernel, w.cell.name) in names
    ]
    return tuple(sorted(found, key=lambda w: (EXPLAIN_FIRST.index(w.problem.kernel), w.cost_s)))


# --- counting ---


def count_chain(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, until: float) -> None:
    """Count all kernels in one program, then, if there is time for another start, what explains it.

    Args:
        run: its series are what was timed.
        jobs: kernels that are counted.
        lab: counts.
        kept: its attempt says what a start costs; gets what was counted, and why some was not.
        until: on the clock.
    """
    cells = {problem: run.wanted[problem] for job in jobs for problem in job.problems}
    if not isinstance(kept.tried, Start):
        _without(run, jobs, to_count(cells, run.found.series, UNLIMITED_S)[0], kept)
        return
    run.progress.stage("counters", 2)
    left_s, start = max(0.0, min(until - run.clock(), MOST_COUNT_S)), kept.tried
    room_s = left_s - start.cost_s
    if room_s < LEAST_S:
        wanted = to_count(cells, run.found.series, UNLIMITED_S)[0]
        _uncounted(run, jobs, wanted, kept, _words(run, start, left_s, _cost_s(wanted)))
        return
    wanted = sum(to_count(cells, run.found.series, room_s), ())
    if wanted:
        _program(run, jobs, Asked("counted", wanted, ncu.CORE, kept.counts), (lab, kept), left_s)
    run.progress.advance("counted")
    _explain(run, jobs, [w for w in wanted if _has(kept, w)], (lab, kept), until)
    run.progress.advance("explained")


def _explain(run: Run, jobs: Sequence[Job], counted: Sequence[Wanted], by: tuple[Lab, Kept], until: float) -> None:
    """Count sectors and waits of what was counted, if there is time for a program's start."""
    _, kept = by
    cells = {problem: run.wanted[problem] for job in jobs for problem in job.problems}
    wanted, left_s = to_explain(counted, cells, run.found.series), until - run.clock()
    start = next((one.start for one in reversed(kept.programs) if one.start is not None), None)
    if not wanted or start is None:
        return
    if left_s >= start.cost_s + LEAST_S:
        _program(run, jobs, Asked("explained", wanted, ncu.DETAIL, kept.waits), by, left_s)
    else:
        run.found.missing.append(f"sectors and waits not counted: {_words(run, start, left_s, LEAST_S)}")


class Asked(NamedTuple):
    """One program under ncu: what it is for, what it counts, by which metrics, and where that goes."""

    what: str
    wanted: Sequence[Wanted]
    metrics: tuple[ncu.Metric, ...]
    into: list[Count]


def _has(kept: Kept, one: Wanted) -> bool:
    key = (one.problem.kernel, one.cell.name, one.problem.n)
    return any(count.call is not None and (count.kernel, count.variant, count.n) == key for count in kept.counts)


def _without(run: Run, jobs: Sequence[Job], wanted: Sequence[Wanted], kept: Kept) -> None:
    """Nothing can be counted here, or it was not tried: what is predicted of it is told."""
    if isinstance(kept.tried, NoCounters):
        kept.uncounted, kept.remedy = kept.tried.reason, kept.tried.remedy
        kept.counts += [_counted(_job(jobs, w), w, kept.tried) for w in wanted]
    else:
        least = _budget(run, LEAST_COUNT_S / COUNT_SHARE)
        _uncounted(run, jobs, wanted, kept, f"too little of the budget is for counters; give --budget {least} at least")


def _uncounted(run: Run, jobs: Sequence[Job], wanted: Sequence[Wanted], kept: Kept, reason: str) -> None:
    """Tell that there was no time for these."""
    kept.counts += [_counted(_job(jobs, w), w, NoCounters(reason, "")) for w in wanted]
    named = ", ".join(f"{w.cell.name} n={w.problem.n}" for w in wanted)
    run.found.missing.append(f"not counted: {named}: {reason}")


def _words(run: Run, start: Start, left_s: float, more_s: float) -> str:
    """What a start takes, what was left, and the budget that would have had time for so many seconds more."""
    lacking_s = start.cost_s + more_s - left_s
    enough = _budget(run, run.budget_s + max(0.0, lacking_s) / COUNT_SHARE)
    took = f"counters take {start.cost_s:.0f} s to start and end here, {max(0.0, left_s):.0f} s were left"
    return f"{took}; give --budget {enough}"


def _budget(run: Run, seconds: float) -> str:
    """What to give so that the run has so many seconds: the next half minute, above what was given; looking at the
    machine takes its time of that, too."""
    return f"{30 * math.ceil((run.looked_s + max(seconds, run.budget_s + 1.0)) / 30)}s"


def _program(run: Run, jobs: Sequence[Job], asked: Asked, by: tuple[Lab, Kept], limit_s: float) -> None:
    """Count some cells in one program: what it has no time for is told without figures."""
    lab, kept = by
    cold = [(w.problem._replace(regime="cold"), w.cell.choice) for w in asked.wanted]
    sources = [Source(job.spec, job.variants) for job in jobs]
    begun = run.clock()
    try:
        came = lab.counting(sources, cold, limit_s, asked.metrics)
    except (AdvisorError, OSError) as error:  # as of a full disk: the times stand
        none = NoCounters(f"counting was not possible: {error}", "", everywhere=False)
        came = Came((none,) * len(cold))
    start = came.starts[0] if came.starts else None
    kept.programs.append(Program(asked.what, start, len(cold), run.clock() - begun))
    failed: dict[str, list[str]] = {}
    more = _more(run, start, len(cold), limit_s)
    for one, outcome in zip(asked.wanted, came.each, strict=True):
        told = outcome
        if isinstance(outcome, NoCounters):
            late = outcome.remedy == MORE_TIME
            told = outcome._replace(reason=f"{outcome.reason}; {more}") if late else outcome
            failed.setdefault(told.reason, []).append(f"{one.cell.name} n={one.problem.n}")
            if outcome.everywhere and not late:
                kept.uncounted, kept.remedy = outcome.reason, outcome.remedy
        asked.into.append(_counted(_job(jobs, one), one, told))
    run.found.missing += [f"not {asked.what}: {', '.join(of)}: {reason}" for reason, of in failed.items()]


def _more(run: Run, start: Start | None, asked: int, limit_s: float) -> str:
    """The budget in which a program would have counted all that it was asked, at the pace that it had."""
    if start is None:
        return f"give --budget {_budget(run, run.budget_s + limit_s / COUNT_SHARE)}"
    pace_s = max(0.0, limit_s - start.cost_s) / max(1, start.choices)
    return f"give --budget {_budget(run, run.budget_s + pace_s * (asked - start.choices) / COUNT_SHARE)}"


def _job(jobs: Sequence[Job], one: Wanted) -> Job:
    return next(job for job in jobs if job.kernel == one.problem.kernel)


def _counted(job: Job, one: Wanted, outcome: Counted) -> Count:
    beside = None
    with contextlib.suppress(BadInput):
        beside = predicted(job.spec, one.cell.variant, one.problem, one.cell.choice)
    where = (job.kernel, one.cell.name, one.problem.n)
    if isinstance(outcome, NoCounters):
        return Count(*where, None, (), beside, outcome.reason)
    return Count(*where, outcome.call, outcome.kernels, beside, seconds=outcome.seconds)
