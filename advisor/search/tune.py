"""Tuning: for every n a search and a race, then the crossings between neighbours. The way from request to outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from advisor.errors import AdvisorError
from advisor.kernels.executor import Executor
from advisor.records import Choice, Measurement, Problem, Verdict
from advisor.search import behind, bounds, least
from advisor.search.carry import taken_over
from advisor.search.crossing import cross
from advisor.search.energy import meter_finalists
from advisor.search.exhaustive import measure_rest, regret, rivals
from advisor.search.features import Array
from advisor.search.finalists import finalists
from advisor.search.known import FAILED, Incumbents, past, same_program
from advisor.search.log import Log
from advisor.search.look import Place, load, most_in_all, on_device, search
from advisor.search.objective import contenders, picked
from advisor.search.plan import (
    Slice,
    affordable,
    costs,
    is_large,
    kept_after,
    least_race_s,
    most_samples,
    time_slice,
)
from advisor.search.race import LEAST_ROUNDS, Heat
from advisor.search.reach import beyond, within_reach
from advisor.search.request import NO_CHOICE, Outcome, Progress, Report, Request, Silent, check
from advisor.search.run import Clock, Limits, Run
from advisor.search.seeds import seeds
from advisor.search.space import binary, cpu_budget, default_choice, space
from advisor.search.stolen import beside_neighbour

RUNNERS_UP = 1
"""Of the two nearest n already done, the choices after the winner that seed the next search."""


BUILDS_A_CPU = 4
"""All builds of a space are compiled before its search where that is at most so many for each CPU: some 2 s. Beyond,
a search in a small space spends less on the few builds that it comes to look at."""


AHEAD_SHARE = 1 / 4
"""Of the time left, what compiling all builds ahead may take; of a small budget the search has more use."""

SURELY = 1.5
"""At a larger n the best takes at most so much more than traffic and arithmetic alone would make it: caches end."""


class Neighbour(NamedTuple):
    """What a problem already done tells the next.

    Attributes:
        choices, belief: its choices and the log times expected of them.
        work: what it saw of the work of a call.
        verdict: of its race; None where there was none.
    """

    choices: tuple[Choice, ...]
    belief: Array
    work: bounds.Work
    verdict: Verdict | None = None


class Entry(NamedTuple):
    """A final's purpose, and who races beside the finalists."""

    purpose: str = "final"
    extra: tuple[Choice, ...] = ()


def tune(
    request: Request,
    executor: Executor,
    log: Log,
    progress: Progress | None = None,
    clock: Clock = time.monotonic,
) -> Outcome:
    """Search and race every problem of a request.

    Ctrl-C (KeyboardInterrupt) ends the run early: everything measured is in the log and in the outcome.

    Args:
        request: what to tune.
        executor: runs choices; the caller closes it.
        log: takes every record; the caller closes it.
        progress: told how it goes.
        clock: seconds; another one in tests.

    Raises:
        BadInput: the request cannot be run.
        SchemaError: with `resume`, the log was written by a newer major version.
    """
    check(request)
    run = Run(request, executor, log, progress or Silent(), clock)
    interrupted = False
    try:
        run.incumbents = _incumbents(run)
        run.open_session()
        with threadpool_limits(limits=1):  # spinning BLAS threads would disturb the workers that are measured
            _all(run)
    except KeyboardInterrupt:
        interrupted = True
    log.sync()
    return run.outcome(interrupted)


def _incumbents(run: Run) -> Incumbents:
    """What the table says now, and what earlier runs on this machine picked, each n by its last race: as of its start
    where a run is resumed.

    The table's choice comes first: the last race may have been won by one that did not land, and a table that was
    rolled back or imported since a run began has other choices than that run knew. What the resumed run has raced
    itself it goes on with as it would have: its own table must not change its way.
    """
    found = _picked(run) if run.known.incumbents is None else run.known.incumbents
    raced = {(v.problem, same_program(s.choice)) for v in run.known.verdicts.values() for s in v.standings if s.summary}
    resumed = run.known.incumbents is not None
    table = {problem: choice for problem, choice in run.request.keep if not (resumed and (problem, choice) in raced)}
    told = {problem: (table[problem], *found.get(problem, ())) for problem in run.request.problems if problem in table}
    return {problem: (*dict.fromkeys(choices),) for problem, choices in {**found, **told}.items()}


def _picked(run: Run) -> Incumbents:
    """What earlier runs picked: the best for the objective, and the race's winner."""
    before, objective = past(run.log.path, run.request), run.request.options.objective
    last = {verdict.problem: verdict for verdict in before.verdicts if verdict.purpose == "final"}
    wanted = (last[problem] for problem in run.request.problems if problem in last)
    return {v.problem: (picked(v, objective, before.stolen, before.energy), v.winner) for v in wanted}


def _all(run: Run) -> None:
    problems, before = run.request.problems, None
    for i, problem in enumerate(problems):
        if run.out_of_time():
            run.notes.append(f"the budget ended before n = {', '.join(str(p.n) for p in problems[i:])}")
            break
        left = [p for p in problems[i:] if within_reach(run, p)]
        if problem not in left:  # they ascend in n: neither is any of the others
            run.notes.append(beyond(run, problems[i:]))
            break
        before = one(run, problem, before, left)
    cross(run)
    if not run.request.options.exhaustive:
        meter_finalists(run)
        beside_neighbour(run)


def one(run: Run, problem: Problem, before: Neighbour | None, left: Sequence[Problem]) -> Neighbour | None:
    """Search and race one problem, the first of those left; returns what it tells the next."""
    begun = run.clock()
    try:
        place = _place(run, problem, before)
    except AdvisorError as error:
        run.notes.append(f"n = {problem.n}: {error}")
        run.reports.append(Report(problem, 0, 0, NO_CHOICE, 0.0))
        return before
    size = len(place.choices)
    run.progress.stage(f"n={problem.n}", most_in_all(run, place))
    run.progress.seconds_left(None if run.deadline == math.inf else max(0.0, run.deadline - begun))
    report = Report(problem, size, 0, "interrupted", 0.0)
    run.reports.append(report)
    _build_ahead(run, place)
    load(run, place)
    share = _share(run, place, left)
    found = search(run, place._replace(spare_until=share.spare_until), share.search_until)
    looked, looked_s = len(run.looks.get(problem, {})), run.clock() - begun
    exhaustive = run.request.options.exhaustive
    entry, lacking = Entry("searched" if exhaustive else "final"), least.lacking(run, problem, place.least)
    verdict = None if lacking else _final(run, place, share.race_until, found.belief, entry)[0]
    run.reports[-1] = report._replace(looked=looked, stopped=found.stopped, search_s=run.clock() - begun)
    if exhaustive and verdict is not None:
        verdict = _exhaust(run, place, verdict, (found.belief, looked_s))
    if verdict is None:
        run.notes.append(f"n = {problem.n}: {unraced(list(run.looks.get(problem, {}).values()), lacking)}")
    run.verdicts += [verdict] if verdict else []
    return Neighbour(place.choices, found.belief, found.work, verdict or (before.verdict if before else None))


def _share(run: Run, place: Place, left: Sequence[Problem]) -> Slice:
    """The time of the first of the problems left, from now: compiling and loading before were for all of them. On a
    device what each must have looked at is no part of what is shared."""
    spec, kept, now = run.request.spec, kept_after(run.request), run.clock()
    if not on_device(run):
        return time_slice(now, run.deadline, spec, left, kept=kept)
    looks = run.looks.get(place.problem, {})
    counts = (sum(choice not in looks for choice in place.least), *[len(place.least)] * (len(left) - 1))
    must = [least.looks_s(run, p, count) + least.race_s(run, p) for p, count in zip(left, counts, strict=True)]
    return time_slice(now, run.deadline, spec, left, True, kept, must)


def _build_ahead(run: Run, place: Place) -> None:
    """Compile all builds at once where that keeps every CPU busy for a few seconds at most, if the budget has room.

    Built one batch at a time, most CPUs would stand idle, and the search would shy away from what is not built yet. An
    executor is asked to be ready all the same: the time that a device's worker takes to start is no problem's share.
    """
    binaries = {binary(choice.build) for choice in place.choices}
    few = len(binaries) <= BUILDS_A_CPU * cpu_budget(run.request.machine)
    ahead = few and run.build_s(place.choices) <= AHEAD_SHARE * (run.deadline - run.clock())
    if ahead:
        run.prepare(place.problem, place.choices)
    elif place.problem not in run.known.trials:
        run.ready(place.problem)


def _place(run: Run, problem: Problem, before: Neighbour | None) -> Place:
    request = run.request
    ground = (request.machine, request.spec, request.variants, problem, request.options.space)
    choices, default = space(*ground), default_choice(*ground)
    near = [*run.incumbents.get(problem, ()), *_neighbours(run, problem)]
    if before is None or not _neighbours(run, problem) or request.options.quick:
        near = [*near, *taken_over(request.machine, problem, choices, quick=request.options.quick)]
    must = least.least(run, problem, choices, default) if on_device(run) else ()
    first = (*dict.fromkeys((*must, *seeds(request.spec, problem, choices, default, near))),)
    if before is None:
        return Place(problem, choices, default, first, least=must)
    work = bounds.grown(before.work, request.spec, problem)
    lane = before.verdict.winner if before.verdict else None
    place = Place(problem, choices, default, first, _prior(choices, before), work, lane, must)
    return place if before.verdict is None else place._replace(seeds=_worth_it(run, place, near, before.verdict))


def _worth_it(run: Run, place: Place, near: Sequence[Choice], before: Verdict) -> tuple[Choice, ...]:
    """The seeds where a smaller n is done: guesses that cannot win are left out, each process part has one.

    At the largest n one look at one thread may take longer than the whole search.
    """
    small = next(s.summary.p25_ns for s in before.standings if s.choice == before.winner and s.summary)
    best_ns = SURELY * small * bounds.most_growth(run.request.spec, before.problem, place.problem)
    sure = run.request.options.objective == "latency" and bounds.comparable(run.request.machine)
    work = place.work if sure and place.work is not None else bounds.Work(place.problem)
    spoken_for = frozenset((place.default, *near))
    kept = [c for c in place.seeds if c in spoken_for or not bounds.hopeless(c, work, best_ns)]
    if on_device(run):
        gone = behind.far_behind(run, before.problem) - {choice.build.variant for choice in near}
        rest = [c for c in kept if c.build.variant not in gone and c not in place.least]
        kept = [*place.least, *behind.in_order(run, place.problem, rest, spoken_for)]
    return tuple(dict.fromkeys((*kept, *bounds.twins(place.choices, before.winner))))


def _neighbours(run: Run, problem: Problem) -> list[Choice]:
    """Winners and runners-up at the two nearest n already done, nearest first, winners before runners-up."""
    near = sorted(run.verdicts, key=lambda v: abs(v.problem.n - problem.n))[:2]
    ranks = [[s.choice for s in v.standings if s.summary is not None][: 1 + RUNNERS_UP] for v in near]
    return [order[k] for k in range(1 + RUNNERS_UP) for order in ranks if k < len(order)]


def _prior(choices: tuple[Choice, ...], before: Neighbour | None) -> Array | None:
    """What the n before expects of these choices, the middle where it did not have one."""
    if before is None:
        return None
    expected = dict(zip(before.choices, before.belief, strict=True))
    middle = float(np.median(before.belief))
    return np.array([expected.get(choice, middle) for choice in choices])


def unraced(looks: Sequence[Measurement], lacking: Sequence[Choice] = ()) -> str:
    """Why an n has no race: all that was looked at failed, or time ran out before a look or before the race."""
    if looks and lacking:
        names = dict.fromkeys(choice.build.variant for choice in lacking)
        return f"no time was left to look at {', '.join(names)}, which must be compared"
    if looks and not any(look.status == "ok" for look in looks):
        return "no choice gave a time"
    return f"no time was left {'to race' if looks else 'for a look'}"


def _final(
    run: Run, place: Place, until: float, belief: Array, entry: Entry
) -> tuple[Verdict | None, dict[Choice, list[float]]]:
    """The race of the finalists, and of whoever else is entered."""
    looks = run.looks.get(place.problem, {})
    cost = costs(list(looks.values()))
    samples = most_samples(is_large(run.request.spec, place.problem, on_device(run)), len(place.choices), cost)
    expected = dict(zip(place.choices, belief, strict=True))
    until = min(run.race_deadline(), max(until, run.clock() + least_race_s(cost)))
    left_s = until - run.clock()
    most = min(affordable(cost, left_s), samples // LEAST_ROUNDS)
    best = finalists(list(looks.values()), place.default, lambda choice: float(expected[choice]), most)
    wanted = contenders(list(looks.values()), run.request.options.objective)
    keep = tuple(c for c in run.incumbents.get(place.problem, ()) if c in looks and looks[c].status == "ok")
    racing = tuple(dict.fromkeys((*best, *keep, *wanted, *entry.extra)))
    if not racing:
        return None, {}
    mute = (place.default,) if place.default in looks and place.default not in racing else ()
    failed = tuple(dict.fromkeys((*mute, *(c for c in run.incumbents.get(place.problem, ()) if _failed(looks.get(c))))))
    heat = Heat(place.problem, racing, place.default, entry.purpose, failed, keep)
    until = min(run.race_deadline(), until + _loading_s(run, looks, racing))
    return run.race(heat, Limits(until, samples=samples))


def _loading_s(run: Run, looks: Mapping[Choice, Measurement], racing: Sequence[Choice]) -> float:
    """Seconds that loading takes in a race on a device, at most: of what a resumed run looked at in another process."""
    if not on_device(run):
        return 0.0
    return sum(looks[choice].seconds for choice in racing if choice in looks and choice.build not in run.called)


def _failed(look: Measurement | None) -> bool:
    """Whether a look speaks against a choice: what the table says there must not stay for want of a race."""
    return look is not None and look.status in FAILED


def _exhaust(run: Run, place: Place, searched: Verdict, found: tuple[Array, float]) -> Verdict:
    """Measure the rest of the space, then race the searched choice and the best of all with fresh samples.

    Args:
        found: what the search believes, and the seconds its first looks took.

    Returns:
        The verdict over all, the search's own when there was no time for it.
    """
    belief, looked_s = found
    begun = run.clock()
    rest = measure_rest(run, place)
    if run.out_of_time():
        run.notes.append(f"n = {place.problem.n}: the budget ended within the exhaustive pass")
        run.reports[-1] = run.reports[-1]._replace(exhaustive_looked=rest.looked)
        return searched._replace(purpose="final")
    everybody = (searched.winner, *rivals(run, place))
    verdict, _ = _final(run, place, run.deadline, belief, Entry(extra=everybody))
    seconds = looked_s + run.clock() - begun
    run.reports[-1] = run.reports[-1]._replace(exhaustive_looked=rest.looked, exhaustive_s=seconds)
    if verdict is None:
        return searched._replace(purpose="final")
    loss = regret(run, place, searched.winner, (verdict.winner, *everybody[1:]))
    run.regrets += [loss] if loss else []
    return verdict
