"""Tune: search, learn, hold out, save, one kernel after another, one tuner at a time on a machine.

Nothing is decided here: each stage is a function of what the one before it left.
"""

from __future__ import annotations

import datetime
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import __version__, codec, device, paths
from advisor.device import CPU, is_device
from advisor.errors import BadInput, UnknownName
from advisor.kernels import pools, registry
from advisor.kernels.available import check as check_tools
from advisor.kernels.gpu import memory
from advisor.kernels.gpu.device import target
from advisor.kernels.memory import is_evicted
from advisor.kernels.power import gpu_joules
from advisor.pipeline import check_headers, check_memory, check_shape, own_shape, variants_for
from advisor.probing import folder_of, remember
from advisor.records import (
    OBJECTIVES,
    REGIMES,
    Choice,
    Machine,
    Measurement,
    Pairs,
    Problem,
    Section,
    Table,
    Verdict,
    pairs,
)
from advisor.search import others
from advisor.search.failures import failures
from advisor.search.space import SpaceOptions, first_of_each_language, space_options
from advisor.topology import probe as topology
from advisor.turn import alone

if TYPE_CHECKING:
    from advisor.kernels.gpu.counts import Counting
    from advisor.search.known import Past
    from advisor.search.log import Log
    from advisor.search.request import Outcome, Progress, Request

HELD_OUT_SHARE = 0.15
"""Of a budget, kept for the races at sizes that were not tuned."""

LEAST_SHARE_S = 0.5
"""What a kernel has at least, however late its turn comes: enough to say that there was no time."""

QUICK_BUDGET_S = 30.0
"""Budget of `--quick` where none is given: an answer before the reader looks away, also on a busy machine."""

MOST_HELD_OUT = 6
"""Sizes held out: enough for a worst case to mean something, few enough to take a small part of the time."""

LIMIT_SHARE, LEAST_LIMIT_S = 1 / 8, 5.0
"""Limit of one trial: this share of a budget, so that what hangs takes a small part of it; never less, since a crowded
machine may need seconds for what it does at once on its own."""

OUT_OF_TIME = ("the time is used", "interrupted")
"""Why a search stopped, where more time would have taken it further."""


class TuneRequest(NamedTuple):
    """What `advisor tune` is asked.

    `shape` has the entries that were given; each counts for the kernels that have it, and defaults fill the rest.
    `device`: cpu, or cuda:N, the number that CUDA programs started here would use. `counters`: count what the winners
    move, on a device.
    `started`: when the command was, on the monotonic clock: a budget counts from then; None: from when it is asked for.
    """

    kernels: tuple[str, ...]
    sizes: tuple[int, ...]
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


class TuneResult(NamedTuple):
    """One kernel's tuning. `table` None and `missing` not empty where no table could be made or not all was done.

    `failed`: nothing came of it, and neither more time nor --resume would help. `device`: the GPU in a few words.
    `counted`: what was counted of the winners, where that was asked for.
    """

    kernel: str
    outcome: Outcome
    table: Table | None
    table_path: str
    log_path: str
    missing: str
    notes: tuple[str, ...]
    failed: bool = False
    objective: str = "latency"
    device: str | None = None
    counted: tuple[Counting, ...] = ()


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
    started = time.monotonic() if request.started is None else request.started
    machine = target(topology.probe(), request.device)
    specs = [registry.spec(kernel, request.kernel_dirs) for kernel in request.kernels]
    check_shape(specs, [entry for entry, _ in request.shape])
    # whatever makes no sense is refused before hours are spent on the others
    asked = [_request(request, kernel, machine, None) for kernel in request.kernels]
    languages = {tool.language for one in asked for tool in one.options.space.compilers}
    check_tools([variant for one in asked for variant in one.variants], languages)
    paths.writable(folder_of(machine))
    remember(machine)
    results: list[TuneResult] = []
    asked_at = time.monotonic()
    with alone(progress):
        started += time.monotonic() - asked_at  # the time of another tuner is not this one's
        seen = _look(machine)
        if say is not None and seen.sentence:
            say(seen.sentence)
        for done, kernel in enumerate(request.kernels):
            share_s = _share_s(request, started, len(request.kernels) - done)
            results.append(_tune_one(request, kernel, machine, progress, _Turn(seen, share_s)))
            if results[-1].outcome.interrupted:
                break
    return results


class _Seen(NamedTuple):
    """Who else used the machine or the device before: a sentence, empty when it was quiet; the same for the log."""

    sentence: str
    recorded: Pairs


class _Turn(NamedTuple):
    """What one kernel's tuning begins with: who else used the machine, and the seconds it has; None: no limit."""

    seen: _Seen
    share_s: float | None


def _share_s(asked: TuneRequest, started: float, kernels: int) -> float | None:
    """An equal part, for each of the kernels left, of what is left of the budget since the command began."""
    whole_s = QUICK_BUDGET_S if asked.quick and asked.budget_s is None else asked.budget_s
    return None if whole_s is None else max(LEAST_SHARE_S, (started + whole_s - time.monotonic()) / kernels)


def _look(machine: Machine) -> _Seen:
    """A busy CPU does not slow a device down, and other programs on a device do not slow a CPU down."""
    if is_device(machine.limits_id):
        now = memory.state(machine.gpus[0])
        return _Seen(memory.sentence(now), memory.recorded(now))
    found = others.look()
    return _Seen(others.sentence(found), others.recorded(found))


def _tune_one(asked: TuneRequest, kernel: str, machine: Machine, progress: Progress, turn: _Turn) -> TuneResult:
    from advisor.kernels.executors import pool_for
    from advisor.search.counting import reserve_s
    from advisor.search.known import past
    from advisor.search.log import Log, set_aside
    from advisor.search.tune import tune as search

    seen, share_s = turn
    kept_s = reserve_s(share_s, asked.counters)
    budget_s = None if share_s is None else share_s - kept_s
    begun = time.monotonic()
    request = _request(asked, kernel, machine, budget_s)._replace(others=seen.recorded)
    folder = folder_of(machine)
    log_path, table_path = os.path.join(folder, "measurements.jsonl"), os.path.join(folder, f"{kernel}.table.json")
    aside = set_aside(log_path)
    before = past(log_path, request)
    with Log(log_path) as log, pool_for(machine, request.spec, request.variants, asked.seed) as pool:
        outcome = search(request, pool, log, progress)
        table = _learn(before, outcome, request, asked)
        until = None if budget_s is None else begun + budget_s
        if table is not None and not outcome.interrupted:
            pool.crew.close()  # its workers hold memory
            tuning = _Tuning(request, pool, log, progress, outcome, until, before)
            outcome, table = _run_again(tuning, table, lambda left: _learn(before, left, request, asked))
        if table is not None and not outcome.interrupted and not asked.exhaustive:
            tuning = _Tuning(request, pool, log, progress, outcome, until, before)
            table, interrupted = _hold_out(tuning, table)
            outcome = outcome._replace(interrupted=interrupted)
        counted: tuple[Counting, ...] = ()
        if asked.counters and table is not None and not outcome.interrupted:
            ends = None if share_s is None else begun + share_s
            counted, interrupted = _count(_Tuning(request, pool, log, progress, outcome, ends, before), table)
            outcome = outcome._replace(interrupted=interrupted)
    notes = [
        *filter(None, [aside, seen.sentence, _not_cold(request)]),
        *outcome.notes,
        *failures(outcome.trials),
        *pools.notes(outcome.trials),
        *before.notes,
    ]
    if table is not None:
        table, notes = _save(table_path, _with_counters(table, machine, log_path), notes)
    missing, failed = _missing(outcome, request, table)
    done = TuneResult(kernel, outcome, table, table_path, log_path, missing, tuple(notes), failed)
    return done._replace(objective=asked.objective, device=_device(machine), counted=counted)


def _device(machine: Machine) -> str | None:
    return device.described(machine.gpus[0]._asdict()) if is_device(machine.limits_id) else None


def _not_cold(request: Request) -> str:
    """The n at which even the cold regime does not leave the caches, in words."""
    machine, spec = request.machine, request.spec
    on_device = is_device(machine.limits_id)

    def evicted(problem: Problem) -> bool:
        return memory.is_evicted(spec, problem) if on_device else is_evicted(machine, spec, problem)

    sizes = [problem.n for problem in request.problems if problem.regime == "cold" and not evicted(problem)]
    caches = "the L2 holds" if on_device else "the last-level caches hold"
    return f"n = {_sizes(sizes)}: operands are so small that {caches} what rotates" if sizes else ""


def _request(asked: TuneRequest, kernel: str, machine: Machine, budget_s: float | None) -> Request:
    from advisor.search.request import Options, Request

    for value, known, what in ((asked.regime, REGIMES, "regime"), (asked.objective, OBJECTIVES, "objective")):
        if value not in known:
            raise UnknownName(f"no such {what}", got=value, allowed=", ".join(known))
    _check_objective(asked.objective, machine)
    if asked.counters and not is_device(machine.limits_id):
        raise BadInput("counters are those of a GPU", got="--counters on CPUs", next_step="name one: --device cuda:0")
    spec = registry.spec(kernel, asked.kernel_dirs)
    shape = own_shape(spec, dict(asked.shape))
    problems = tuple(spec.problem(n, asked.dtype, asked.regime, **shape) for n in asked.sizes)
    check_memory(spec, problems, machine)
    found = variants_for(kernel, asked.kernel_dirs, machine)
    check_headers(spec, found, problems)
    options = Options(
        space=_space(machine, asked),
        budget_s=None if budget_s is None else budget_s * (1 - HELD_OUT_SHARE),
        exhaustive=asked.exhaustive,
        quick=asked.quick,
        seed=asked.seed,
        resume=asked.resume,
        trial_limit_s=trial_limit(budget_s),
        objective=asked.objective,
    )
    session = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    return Request(machine, spec, found, problems, options, session, machine.environment)


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


def trial_limit(budget_s: float | None) -> float:
    """Wall-clock limit of one measurement in seconds, within a kernel's budget (None: none)."""
    from advisor.search.request import TRIAL_LIMIT_S

    return TRIAL_LIMIT_S if budget_s is None else min(TRIAL_LIMIT_S, max(LEAST_LIMIT_S, budget_s * LIMIT_SHARE))


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
            raise BadInput("no such compiler here", got=name, allowed=f"{', '.join(known)}, first, all")
    return options._replace(compilers=tuple(tool for tool in options.compilers if tool.name in wanted))


def _learn(before: Past, outcome: Outcome, request: Request, asked: TuneRequest) -> Table | None:
    """The table of an outcome and of what earlier runs found at other n; None where not one race ended."""
    from advisor.policy.learn import DEPENDS, Beside, Made, learn

    if not any(verdict.purpose == "final" for verdict in outcome.verdicts):
        return None
    created = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    provenance = pairs(
        {
            "session": request.session,
            "advisor": __version__,
            "log": "measurements.jsonl",
            "budget_s": asked.budget_s,
            "quick": asked.quick,
            "objective": asked.objective,
            "regime": asked.regime,
            "seed": asked.seed,
        }
    )
    verdicts, trials = [*before.verdicts, *outcome.verdicts], [*before.trials, *outcome.trials]
    beside = Beside([*before.stolen, *outcome.stolen], [*before.energy, *outcome.energy])
    depends = device.DEPENDS if is_device(request.machine.limits_id) else DEPENDS
    made = Made(created, provenance, depends, asked.objective)
    return learn(request.machine, verdicts, trials, made, beside)


class _Tuning(NamedTuple):
    """What a held-out race needs of the tuning that went before. `until` on the monotonic clock."""

    request: Request
    pool: Any
    log: Log
    progress: Progress
    outcome: Outcome
    until: float | None
    before: Past


def _run_again(
    tuning: _Tuning, table: Table, learn_again: Callable[[Outcome], Table | None]
) -> tuple[Outcome, Table | None]:
    """Outcome and table without the winners that fail in a fresh process; half of the time left goes to that."""
    from advisor.kernels.executors import pool_for
    from advisor.policy.learn import choose
    from advisor.search.known import AGAIN
    from advisor.search.recheck import Recheck, recheck
    from advisor.search.run import finite

    request = tuning.request

    def record(measurement: Measurement) -> None:
        choice_id, document = codec.digest(measurement.choice), codec.to_json(finite(measurement))
        kinds = {"kind": "trial", "session": request.session, "choice_id": choice_id, "phase": AGAIN}
        tuning.log.append({**kinds, "measurement": document})

    now = time.monotonic()
    until = None if tuning.until is None else now + (tuning.until - now) / 2
    limit_s, earlier = request.options.trial_limit_s, tuning.before.checks
    plan = Recheck(learn_again, choose, request.problems, limit_s, until, record, earlier)
    with pool_for(request.machine, request.spec, request.variants, request.options.seed) as fresh:
        left = recheck(fresh, plan, tuning.outcome, table, tuning.progress)
    return left.outcome._replace(interrupted=left.interrupted), left.table


def _count(tuning: _Tuning, table: Table) -> tuple[tuple[Counting, ...], bool]:
    """What the table's choices move where races were run, also written to the log; whether Ctrl-C came."""
    from advisor.policy.learn import choose
    from advisor.search.counting import count_winners

    tuning.pool.crew.close()  # nothing else may run on a device while a profiler counts
    own = of_shape(table, tuning.request.problems[0])
    problems = [verdict.problem for verdict in tuning.outcome.verdicts if verdict.purpose == "final"]
    winners = [(problem, choose(best_section(own, problem.n), problem.n)) for problem in problems]
    left_s = None if tuning.until is None else tuning.until - time.monotonic()
    try:
        return count_winners(tuning.request, tuning.log, winners, left_s), False
    except KeyboardInterrupt:
        return (), True


def _with_counters(table: Table, machine: Machine, log_path: str) -> Table:
    """The table with all that the log knows of counters, of this tuning and of earlier ones."""
    from advisor.policy.counted import with_counters
    from advisor.search.counting import recorded

    return with_counters(table, recorded(log_path)) if is_device(machine.limits_id) else table


def held_out_sizes(tuned: Sequence[int], most: int) -> tuple[int, ...]:
    """Sizes between the tuned ones, as far from both as can be on the log axis, and odd where there is room.

    Args:
        tuned: ascending.
        most: at most so many, spread over the whole range.
    """
    middles = [math.isqrt(a * b) | 1 for a, b in pairwise(tuned)]
    found = [n for n, (a, b) in zip(middles, pairwise(tuned), strict=True) if a < n < b]
    step = max(1, math.ceil(len(found) / most))
    return tuple(found[::step])


def _hold_out(tuning: _Tuning, table: Table) -> tuple[Table, bool]:
    """The table with its regret at sizes that were not tuned, unchanged where no time is left; whether Ctrl-C came."""
    from advisor.policy.learn import choose, with_heldout
    from advisor.search.heldout import HoldOut, hold_out

    request = tuning.request
    first = request.problems[0]
    most = 2 if request.options.quick else MOST_HELD_OUT
    sizes = held_out_sizes([v.problem.n for v in tuning.outcome.verdicts if v.purpose == "final"], most)

    own = of_shape(table, first)

    def pick(problem: Problem) -> Any:
        return choose(best_section(own, problem.n), problem.n)

    plan = HoldOut(pick, tuple(first._replace(n=n) for n in sizes), tuning.outcome.verdicts, tuning.until)
    held = hold_out(request, tuning.pool, tuning.log, plan, tuning.progress)
    return with_heldout(table, [*tuning.before.verdicts, *held.verdicts]), held.interrupted


def of_shape(table: Table, problem: Problem) -> Table:
    """The table with the sections of a problem's dtype, shape and regime alone."""
    wanted = (problem.dtype, problem.shape, problem.regime)
    return table._replace(sections=tuple(s for s in table.sections if (s.dtype, s.shape, s.regime) == wanted))


def best_section(table: Table, n: int) -> Section:
    """The section (process part) whose choice is best at the tuned n, as `Policy.best` says it; elsewhere the one that
    is expected to be fastest near n, the first among equals; for other objectives the best at the nearest tuned n.
    """
    for section in table.sections:
        near = min(section.tuned_n, key=lambda other: abs(math.log(other / n)))
        if near in dict(section.wins).get(section.objective, ()) and (near == n or section.objective != "latency"):
            return section

    def expected(section: Section) -> float:
        row = next((row for row in section.rows if row.low <= n <= row.high), None)
        if row is None or not row.points:
            return math.inf
        return min(row.points, key=lambda point: abs(math.log(point.n / n))).summary.p25_ns

    return min(table.sections, key=expected)


def _save(path: str, table: Table, notes: list[str]) -> tuple[Table, list[str]]:
    from advisor.policy.store import save_table

    saved = save_table(path, table)
    return saved.table, [*notes, *saved.notes]


def _missing(outcome: Outcome, request: Request, table: Table | None) -> tuple[str, bool]:
    """What has no answer and why, and whether nothing at all came of it, for another reason than time."""
    done = {verdict.problem.n for verdict in outcome.verdicts if verdict.purpose == "final"}
    absent = [problem.n for problem in request.problems if problem.n not in done]
    if outcome.interrupted:
        return f"interrupted; no answer yet for n = {_sizes(absent)}; go on with --resume", False
    reasons = {n: _failure(outcome.trials, n) for n in absent}
    ended = {report.problem.n for report in outcome.reports if report.stopped not in OUT_OF_TIME}
    broken = [n for n in absent if reasons[n] and n in ended]
    late = [n for n in absent if n not in broken]
    parts = [f"no choice ran at n = {_sizes(broken)} ({reasons[broken[0]]})"] if broken else []
    tried = "".join(f" ({reasons[n]})" for n in late[:1] if reasons[n])
    parts += [f"no answer for n = {_sizes(late)}{tried}; a larger --budget or --resume finishes them"] if late else []
    return "; ".join(parts), table is None and not late


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "none"


def _failure(trials: Sequence[Measurement], n: int) -> str:
    """Why everything that was tried at n failed; empty where something ran, or nothing was tried."""
    tried = [trial for trial in trials if trial.problem.n == n]
    if not tried or any(trial.status == "ok" for trial in tried):
        return ""
    (status, reason), count = Counter((trial.status, trial.reason) for trial in tried).most_common(1)[0]
    return f"{count} of {len(tried)} {status}: {' '.join(reason.split())[-300:]}"


def _best_json(result: TuneResult, verdict: Verdict) -> dict[str, Any]:
    """The choice at one n, with its figures on a quiet machine and beside a busy neighbour."""
    from advisor.search.objective import Figures, figures_of

    choice = chosen(result, verdict)
    known = {one.choice: one for one in figures_of(verdict, result.outcome.stolen, result.outcome.energy)}
    own = known.get(choice) or Figures(choice)
    standing = next((s for s in verdict.standings if s.choice == choice), None)
    return {
        "n": verdict.problem.n,
        "choice": codec.to_json(choice),
        "p25_ns": own.quiet.p25_ns if own.quiet else None,
        "ci95_ns": list(own.quiet.ci95_ns) if own.quiet else None,
        "stolen_mean_ns": own.stolen.mean_ns if own.stolen else None,
        "stolen_p99_ns": own.stolen.p99_ns if own.stolen else None,
        "fragility": own.fragility,
        "joules": own.joules,
        "contended": bool(standing and standing.contended),
        **_counted_json(result, verdict.problem),
    }


def _counted_json(result: TuneResult, problem: Problem) -> dict[str, Any]:
    """What was counted at one n, or why nothing was; nothing where it was not asked for."""
    one = next((one for one in result.counted if one.problem == problem), None)
    return {} if one is None else {"counters": codec.to_json(one.counters), "no_counters": codec.to_json(one.none)}


def chosen(result: TuneResult, verdict: Verdict) -> Choice:
    """What the table says where a race was run, of whatever process part: what `advisor recommend` says there too."""
    from advisor.search.objective import picked

    return picked(verdict, result.objective, result.outcome.stolen, result.outcome.energy)


def result_json(result: TuneResult) -> dict[str, Any]:
    """The document of `advisor tune --json`."""
    outcome = result.outcome
    best = [_best_json(result, verdict) for verdict in outcome.verdicts if verdict.purpose == "final"]
    document = {
        "kernel": result.kernel,
        "objective": result.objective,
        "device": result.device,
        "problems": [codec.to_json(report.problem) for report in outcome.reports],
        "space_size": outcome.space_size,
        "trials": dict(outcome.counts),
        "seconds": dict(outcome.seconds),
        "table_path": result.table_path if result.table else None,
        "log_path": result.log_path,
        "best": best,
        "interrupted": outcome.interrupted,
        "missing": result.missing,
        "notes": list(result.notes),
    }
    if outcome.regrets:
        document["regret"] = [
            {"n": r.problem.n, "ratio": r.ratio, "ratio_ci95": list(r.ratio_ci95)} for r in outcome.regrets
        ]
    return document
