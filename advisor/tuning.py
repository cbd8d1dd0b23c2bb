"""Tune: search, learn, hold out, save, one kernel after another, one tuner at a time on a machine.

Nothing is decided here: each stage is a function of what the one before it left.
"""

from __future__ import annotations

import datetime
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from advisor import device, missed, model, paths, shares
from advisor.asked import Own, Wanted, default_sizes, of_model, smaller_sizes
from advisor.concluding import Tuning, count, hold_out, learned, run_again, save, with_counters
from advisor.device import CPU, is_device
from advisor.errors import AdvisorError, BadInput, Busy, UnknownName
from advisor.gate import Bar
from advisor.kernels import pools, registry
from advisor.kernels.available import check as check_tools
from advisor.kernels.gpu import memory
from advisor.kernels.gpu.device import target
from advisor.kernels.gpu.tools import left_out
from advisor.kernels.memory import is_evicted
from advisor.kernels.power import gpu_joules
from advisor.kernels.served import check_dtype, served
from advisor.missed import CatchUp
from advisor.pipeline import (
    check_headers,
    check_memory,
    check_shape,
    fitting,
    own_shape,
    variants_for,
)
from advisor.probing import folder_of, remember
from advisor.records import (
    OBJECTIVES,
    REGIMES,
    Machine,
    Pairs,
    Problem,
    pairs,
)
from advisor.search import others
from advisor.search.failures import failures
from advisor.search.space import SpaceOptions, default_choice, first_of_each_language, space_options
from advisor.shares import UNLIMITED, Need, OfMany, Room
from advisor.topology import probe as topology
from advisor.tuning_result import TuneResult, listed, missing
from advisor.turn import alone

if TYPE_CHECKING:
    from advisor.gate import Stands
    from advisor.kernels.gpu.counts import Counting
    from advisor.kernels.spec import KernelSpec
    from advisor.kernels.variant import Variant
    from advisor.policy.landing import Decision
    from advisor.records import Section, Table
    from advisor.search.request import Outcome, Progress, Request

HELD_OUT_SHARE = 0.15
"""Of a budget, kept for the races at sizes that were not tuned."""

CHECK_S, CHECK_SHARE = 2.5, 0.3
"""Seconds kept to run a winner once more in a fresh process where a table stands, which it else may not replace, and
the share of a small budget that this may be: a worker takes a second to start."""

LEAST_SHARE_S = 0.5
"""What a kernel has at least, however late its turn comes: enough to say that there was no time."""

QUICK_BUDGET_S = 30.0
"""Budget of `--quick` where none is given: an answer before the reader looks away, also on a busy machine."""


class TuneRequest(NamedTuple):
    """What `advisor tune` is asked.

    `sizes` none: those that suit each kernel. `shape` has the entries that were given; each counts for the kernels that
    have it, and defaults fill the rest. `own`: of the kernels of a model, what each has in the place of these three.
    `device`: cpu, or cuda:N, the number that CUDA programs started here would use. `counters`: count what the winners
    move, on a device.
    `started`: when the command was, on the monotonic clock: a budget counts from then; None: from when it is asked for.
    `bar`: what a choice must beat the table's by to take its place, and over which calls.
    `catch_up`: what lookups missed goes first, see `advisor.missed`; `added`: n beside those that suit a kernel.
    """

    kernels: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    dtype: str = "float32"
    shape: Pairs = ()
    budget_s: float | None = None
    exhaustive: bool = False
    quick: bool = False
    resume: bool = False
    oversubscribe: bool = False
    compilers: str = "first"
    seed: int = 0
    kernel_dirs: tuple[str, ...] = ()
    regime: str = "warm"
    objective: str = "latency"
    device: str = CPU
    counters: bool = False
    started: float | None = None
    bar: Bar = Bar()
    own: tuple[Own, ...] = ()
    catch_up: CatchUp | None = None
    added: tuple[int, ...] = ()


def for_model(request: TuneRequest, path: str, wanted: Wanted) -> tuple[TuneRequest, tuple[str, ...]]:
    """The request for the kernels of a model, and what must be said of them.

    Args:
        request: its `shape` counts instead of the model's entries.
        path: of the model's config.json.
        wanted: sizes, dtype and batch for all of its kernels.

    Raises:
        BadInput: no such model, or it has no use for a kernel.
    """
    specs = [registry.spec(kernel, request.kernel_dirs) for kernel in request.kernels]
    check_shape(specs, [entry for entry, _ in request.shape])
    given = {entry: value for entry, value in request.shape if entry != "batch"}
    able = served(request.kernels, request.kernel_dirs, request.device != CPU)
    own, notes = of_model(model.read(path, given), specs, wanted, able)
    return request._replace(own=own, kernels=tuple(one.kernel for one in own)), notes


def tune(request: TuneRequest, progress: Progress, say: Callable[[str], None] | None = None) -> list[TuneResult]:
    """Tune every kernel of a request, one after another, each with its share of the budget; Ctrl-C ends all of it.

    Args:
        request: what to tune.
        progress: told how it goes.
        say: told before tuning starts when others use the machine.

    Raises:
        BadInput: a size, shape or compiler makes no sense; no compiler, no such device; no place for the results.
        Busy: another tuner held this machine for over an hour.
    """
    from advisor.search.pace import slowness

    started = time.monotonic() if request.started is None else request.started
    machine = target(topology.probe(), request.device)
    if not request.own:
        specs = [registry.spec(kernel, request.kernel_dirs) for kernel in request.kernels]
        check_shape(specs, [entry for entry, _ in request.shape])
    # whatever makes no sense is refused before hours are spent on the others
    asked, left_out = _requests(request, machine)
    request = request._replace(kernels=tuple(one.spec.name for one in asked))
    turns, due = _with_missed(request, machine)
    if say is not None and (left_out or due):
        say("\n".join([*left_out, *due]))
    languages = {tool.language for one in asked for tool in one.options.space.compilers}
    check_tools([variant for one in asked for variant in one.variants], languages)
    paths.writable(folder_of(machine))
    kept = remember(machine)
    if say is not None and kept:
        say(kept)
    results: list[TuneResult] = []
    asked_at = time.monotonic()
    with alone(progress):
        started += time.monotonic() - asked_at  # the time of another tuner is not this one's
        seen = _look(machine)
        if say is not None and seen.sentence:
            say(seen.sentence)
        needs, slow = [_need(own, kernel, machine) for own, kernel in turns], shares.crowding()
        for done, (own, kernel) in enumerate(turns):
            share_s = _share_s(request, started, [shares.least_s(need, slow) for need in needs[done:]])
            told = _told(progress, request, [name for _, name in turns], done, started)
            results.append(_tune_one(own, kernel, machine, told, _Turn(seen, share_s, slow)))
            slow = max(shares.crowding(), slowness(needs[done].variants, results[-1].outcome.build_s, slow))
            if results[-1].outcome.interrupted:
                break
        missed.clear(folder_of(machine))
    return results


def _with_missed(request: TuneRequest, machine: Machine) -> tuple[list[tuple[TuneRequest, str]], tuple[str, ...]]:
    """What is tuned in turn, what lookups missed in front as far as that can be done here; and sentences on it."""
    found = missed.turns(request, folder_of(machine))
    turns = []
    for own, kernel in found.turns if found.notes else ():
        try:
            _request(own, kernel, machine)
            turns.append((own, kernel))
        except AdvisorError:  # nobody asked for that now; what was asked has been tried before
            turns += [(request, kernel)] if own.shape == request.shape and kernel in request.kernels else []
    return turns or list(found.turns), found.notes


def _told(progress: Progress, asked: TuneRequest, names: Sequence[str], done: int, started: float) -> Progress:
    """Progress that says which kernel of several it is, and how long all of them take."""
    if len(names) == 1:
        return progress
    name = f"{names[done]} ({done + 1} of {len(names)})"
    return OfMany(progress, name, lambda: _share_s(asked, started, (1.0,)))


class _Seen(NamedTuple):
    """Who else used the machine or the device before: a sentence, empty when it was quiet; the same for the log."""

    sentence: str
    recorded: Pairs


class _Turn(NamedTuple):
    """What one kernel's tuning begins with: who else used the machine, the seconds it has (None: no limit), and how
    many times as long as on a quiet machine everything takes."""

    seen: _Seen
    share_s: float | None
    slow: float = 1.0


def _share_s(asked: TuneRequest, started: float, needs: Sequence[float]) -> float | None:
    """The part, for the first of the kernels left, of what is left of the budget since the command began. `needs`: the
    seconds that each takes at least."""
    whole_s = QUICK_BUDGET_S if asked.quick and asked.budget_s is None else asked.budget_s
    if whole_s is None:
        return None
    return max(LEAST_SHARE_S, shares.share_of(started + whole_s - time.monotonic(), needs))


def _need(asked: TuneRequest, kernel: str, machine: Machine) -> Need:
    """What the least table of a kernel takes."""
    request = _request(asked, kernel, machine)
    first = request.problems[0]
    smaller = smaller_sizes(request.spec) if asked.own and not asked.sizes else ()
    return Need(request.spec, first._replace(n=min((first.n, *smaller))), request.variants)


def _look(machine: Machine) -> _Seen:
    """A busy CPU does not slow a device down, and other programs on a device do not slow a CPU down."""
    if is_device(machine.limits_id):
        now = memory.state(machine.gpus[0])
        return _Seen(memory.sentence(now), memory.recorded(now))
    found = others.look()
    return _Seen(others.sentence(found), others.recorded(found))


def _tune_one(asked: TuneRequest, kernel: str, machine: Machine, progress: Progress, turn: _Turn) -> TuneResult:
    from advisor import gate
    from advisor.kernels.executors import pool_for
    from advisor.policy.store import measured_of
    from advisor.search.counting import reserve_s
    from advisor.search.known import past
    from advisor.search.log import Log, set_aside
    from advisor.search.tune import tune as search

    seen, share_s = turn.seen, turn.share_s
    kept_s = reserve_s(share_s, asked.counters)
    budget_s = None if share_s is None else share_s - kept_s
    begun = time.monotonic()
    request = _request(asked, kernel, machine, Room(budget_s, turn.slow))._replace(others=seen.recorded)
    folder = folder_of(machine)
    log_path, table_path = os.path.join(folder, "measurements.jsonl"), os.path.join(folder, f"{kernel}.table.json")
    aside, stands = set_aside(log_path), gate.standing(table_path, request)
    request = _leaving_time(request, budget_s) if stands.table else request
    request = request._replace(keep=gate.keep(stands.table, request.problems))
    before = gate.remembered(past(log_path, request), stands.table, request)
    until = None if budget_s is None else begun + budget_s
    last = math.inf if until is None else until
    with Log(log_path) as log, pool_for(machine, request.spec, request.variants, asked.seed, last) as pool:
        outcome = search(request, pool, log, progress)
        tuning = Tuning(request, pool, log, progress, outcome, until, before)
        ended = _settled(tuning, stands, asked)
        if ended.table is not None and ended.changes and not ended.outcome.interrupted and not asked.exhaustive:
            held, interrupted = hold_out(tuning._replace(outcome=ended.outcome), ended.table)
            ended = ended._replace(table=held, outcome=ended.outcome._replace(interrupted=interrupted))
        # before anything is counted: whatever becomes of that, the table lies there
        ended, notes = _saved(ended, tuning, table_path, stands.replaces)
        counted: tuple[Counting, ...] = ()
        if asked.counters and ended.table is not None and not ended.outcome.interrupted:
            ends = None if share_s is None else begun + share_s
            lies = measured_of(ended.table, ended.table)
            counted, interrupted = count(tuning._replace(outcome=ended.outcome, until=ends), ended.table)
            ended = ended._replace(outcome=ended.outcome._replace(interrupted=interrupted))
            ended, more = _saved(ended, tuning, table_path, lies)
            notes = (*notes, *more)
    outcome, decision, table = ended.outcome, ended.decision, ended.table
    said = [*filter(None, [aside, *stands.notes, seen.sentence]), *_notes(asked, request, outcome), *before.notes]
    said += [*notes, *(gate.record(decision, table_path, request, table) if decision else ())]
    absent, failed = missing(outcome, request, table)
    path = table_path if ended.changes else stands.path or table_path
    done = TuneResult(kernel, outcome, table, path, log_path, absent, tuple(said), failed)
    return done._replace(objective=asked.objective, device=_device(machine), counted=counted, decision=decision)


class _Ended(NamedTuple):
    """What a tuning comes to at the gate. `table`: the new one, or the one that stays; None: no race ended, and none
    stands."""

    outcome: Outcome
    table: Table | None
    decision: Decision | None = None

    @property
    def changes(self) -> bool:
        """Whether the table is a new one, to be saved."""
        return self.decision is not None and self.decision.changes


def _leaving_time(request: Request, budget_s: float | None) -> Request:
    """The request with a search that leaves time to run a winner again: else nothing lands over what stands."""
    if budget_s is None:
        return request
    least_s = max(HELD_OUT_SHARE * budget_s, min(CHECK_S, CHECK_SHARE * budget_s))
    return request._replace(options=request.options._replace(budget_s=budget_s - least_s))


def _settled(tuning: Tuning, stands: Stands, asked: TuneRequest) -> _Ended:
    """What was learned of a search, without what fails in a fresh process, and what becomes of it at the gate."""
    from advisor import gate

    request, before, outcome = tuning.request, tuning.before, tuning.outcome

    def candidate(left: Outcome) -> Table | None:
        return learned(before, left, request, asked, gate.untouched(stands.table, left, request))

    table, checks = candidate(outcome), before.checks
    if table is not None and not outcome.interrupted:
        tuning.pool.crew.close()  # its workers hold memory
        outcome, table, found = run_again(tuning, table, candidate, 1.0 if stands.table else 0.5)
        checks = (*checks, *found)
    if table is None:
        return _Ended(outcome, None)
    landed = gate.land(stands.table, outcome, table, request, asked.bar, checks)
    if landed.decision.changes:
        table = learned(before, landed.outcome, request, asked, landed.kept)
    return _Ended(outcome, table if landed.decision.changes else stands.table, landed.decision)


def _saved(ended: _Ended, tuning: Tuning, path: str, replaces: Sequence[Section]) -> tuple[_Ended, tuple[str, ...]]:
    """Save the table of a tuning that changes it. What was imported or rolled back to meanwhile stays."""
    from advisor import gate
    from advisor.policy.landing import OVERTAKEN

    if ended.table is None or ended.decision is None or not ended.changes:
        return ended, ()
    request, log_path = tuning.request, tuning.log.path
    try:
        table = with_counters(ended.table, request.machine, log_path)
        saved = save(path, table, request, log_path, replaces)
    except Busy as error:
        decision = ended.decision._replace(verdict=OVERTAKEN, why=str(error), taken=())
        return ended._replace(table=gate.standing(path, request).table, decision=decision), ()
    return ended._replace(table=saved.table), saved.notes


def _notes(asked: TuneRequest, request: Request, outcome: Outcome) -> list[str]:
    """What the user should know of a run."""
    left_out = filter(None, [_untaken(asked, request), _not_cold(request), _without_torch(asked, request.machine)])
    return [*left_out, *outcome.notes, *failures(outcome.trials), *pools.notes(outcome.trials)]


def _untaken(asked: TuneRequest, request: Request) -> str:
    """The sizes that suit a kernel, which nobody named, and for which there is no room, in words."""
    suit = _suiting(asked, next((one for one in asked.own if one.kernel == request.spec.name), None), request.spec)
    taken = {problem.n for problem in request.problems}
    left = [] if asked.sizes else [n for n in suit if n not in taken]
    return f"n = {listed(left)} left out: no room in the kernel's share of the budget, or in memory" if left else ""


def _device(machine: Machine) -> str | None:
    return device.described(machine.gpus[0]._asdict()) if is_device(machine.limits_id) else None


def _without_torch(asked: TuneRequest, machine: Machine) -> str:
    """Why PyTorch's variants were not tried on a device where it is installed; empty for who chose the tools."""
    chosen = asked.compilers not in ("first", "all")
    return "" if chosen or not is_device(machine.limits_id) else left_out()


def _not_cold(request: Request) -> str:
    """The n at which even the cold regime does not leave the caches, in words."""
    machine, spec = request.machine, request.spec
    on_device = is_device(machine.limits_id)

    def evicted(problem: Problem) -> bool:
        return memory.is_evicted(spec, problem, machine.gpus[0]) if on_device else is_evicted(machine, spec, problem)

    sizes = [problem.n for problem in request.problems if problem.regime == "cold" and not evicted(problem)]
    caches = "the L2 holds" if on_device else "the last-level caches hold"
    return f"n = {listed(sizes)}: operands are so small that {caches} what rotates" if sizes else ""


def _requests(asked: TuneRequest, machine: Machine) -> tuple[list[Request], list[str]]:
    """What is asked of every kernel; of a model's those that can be tuned here, and why the others are left out.

    Raises:
        BadInput, UnknownName: a kernel that was named, or each of a model's, cannot be tuned as asked.
    """
    found, refused = [], []
    for kernel in asked.kernels:
        try:
            found.append(_request(asked, kernel, machine))
        except AdvisorError as error:
            if not asked.own:
                raise
            refused.append((kernel, error))
    if refused and not found:
        raise refused[0][1]
    return found, [f"{kernel} is left out: {error}" for kernel, error in refused]


def _request(asked: TuneRequest, kernel: str, machine: Machine, room: Room = UNLIMITED) -> Request:
    from advisor.search.pace import first_s
    from advisor.search.request import TRIAL_LIMIT_S, Options, Request

    for value, known, what in ((asked.regime, REGIMES, "regime"), (asked.objective, OBJECTIVES, "objective")):
        if value not in known:
            raise UnknownName(f"no such {what}", got=value, allowed=", ".join(known))
    _check_objective(asked.objective, machine)
    if asked.counters and not is_device(machine.limits_id):
        raise BadInput("counters are those of a GPU", got="--counters on CPUs", next_step="name one: --device cuda:0")
    spec = registry.spec(kernel, asked.kernel_dirs)
    found = variants_for(kernel, asked.kernel_dirs, machine)
    problems = _problems(asked, (spec, found), machine, room)
    check_dtype(spec, found, problems[0].dtype, machine)
    check_headers(spec, found, problems)
    options = Options(
        space=_space(machine, asked),
        budget_s=None if room.seconds is None else room.seconds * (1 - HELD_OUT_SHARE),
        exhaustive=asked.exhaustive,
        quick=asked.quick,
        seed=asked.seed,
        resume=asked.resume,
        trial_limit_s=shares.trial_limit(room, spec, problems[0], TRIAL_LIMIT_S),
        objective=asked.objective,
    )
    if is_device(machine.limits_id):
        _check_possible(spec, found, problems, (machine, options.space))
    session = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    request = Request(machine, spec, found, problems, options, session, machine.environment)
    return request._replace(build_s=first_s(found, room.slow))


def _check_possible(
    spec: KernelSpec, found: Sequence[Variant], problems: Sequence[Problem], where: tuple[Machine, SpaceOptions]
) -> None:
    """Refuse a shape that no variant takes on a device at any of the sizes, before time is spent on other kernels.

    Raises:
        UnknownName: with the variants that there are.
    """
    machine, options = where
    refused: list[UnknownName] = []
    for problem in problems:
        try:
            default_choice(machine, spec, found, problem, options)
        except UnknownName as error:
            refused.append(error)
    if len(refused) == len(problems):
        raise refused[0]


def _problems(
    asked: TuneRequest, kernel: tuple[KernelSpec, tuple[Variant, ...]], machine: Machine, room: Room
) -> tuple[Problem, ...]:
    """The problems of a kernel, ascending. Sizes that nobody named are taken as far as their operands fit here, and of
    a model's kernel as far as there is time for them.

    Raises:
        BadInput: a size that was named, or the smallest, does not fit.
    """
    spec, variants = kernel
    own = next((one for one in asked.own if one.kernel == spec.name), None)
    if own is None:
        own = Own(spec.name, asked.sizes, asked.dtype, pairs(own_shape(spec, dict(asked.shape))))
    sizes = asked.sizes or _suiting(asked, own, spec)
    least = spec.problem(sizes[0], own.dtype, asked.regime, **dict(own.shape))
    if asked.own and not asked.sizes:
        needs = [(n, Need(spec, least._replace(n=n), variants)) for n in (*smaller_sizes(spec), sizes[0])]
        small = shares.within_room(needs, room, sizes[0])
        sizes = shares.room_for(tuple(sorted({small, *sizes})), room.seconds)
    found = tuple(least._replace(n=n) for n in sizes)
    if asked.sizes:
        check_memory(spec, found, machine)
        return found
    check_memory(spec, found[:1], machine)
    return fitting(spec, found, machine)


def _suiting(asked: TuneRequest, own: Own | None, spec: KernelSpec) -> tuple[int, ...]:
    """The sizes of a kernel where nobody named any: those that suit it or its model, and those that lookups missed."""
    return tuple(sorted({*((own and own.sizes) or default_sizes(spec)), *asked.added}))


def _check_objective(objective: str, machine: Machine) -> None:
    """Refuse what a device has no figures for.

    Raises:
        BadInput: robust, which is about a neighbour on a CPU; efficiency where nothing tells the energy.
    """
    if not is_device(machine.limits_id) or objective == "latency":
        return
    if objective == "robust":
        raise BadInput(
            "robust is the mean time beside a process that keeps a CPU busy, which no GPU feels",
            got=f"--objective robust on {machine.gpus[0].name}",
            allowed="latency, efficiency",
        )
    if gpu_joules(machine.gpus[0].uuid or "") is None:
        raise BadInput(
            "efficiency on a GPU is joules a call, which need a counter of energy",
            got=f"none that NVML tells of {device.described(machine.gpus[0]._asdict())}",
            allowed="latency",
            next_step="whole GPUs since Volta have one, slices do not",
        )


def _space(machine: Machine, asked: TuneRequest) -> SpaceOptions:
    options = space_options(machine, asked.oversubscribe)
    if asked.compilers == "all":
        return options
    if asked.compilers == "first":
        return options._replace(compilers=first_of_each_language(options.compilers))
    wanted = [name.strip() for name in asked.compilers.split(",")]
    known = [tool.name for tool in options.compilers]
    for name in wanted:
        if name not in known:
            allowed, why = f"{', '.join(known)}, first, all", left_out() if is_device(machine.limits_id) else ""
            raise BadInput("no such compiler here", got=name, allowed=allowed, next_step=why)
    return options._replace(compilers=tuple(tool for tool in options.compilers if tool.name in wanted))
