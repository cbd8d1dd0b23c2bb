"""The stages in a row, as the commands need them: probe, tune, learn, hold out, save; load and recommend; verify.

Nothing is decided here: each stage is a function of what the one before it left.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from advisor import __version__, codec, paths
from advisor.errors import AdvisorError, BadInput, Busy, UnknownName
from advisor.kernels import registry
from advisor.kernels.memory import USABLE, need_bytes, room_bytes
from advisor.kernels.variant import check_expressions, variants
from advisor.records import Machine, Measurement, Pairs, Problem, Section, Table, pairs
from advisor.search.space import SpaceOptions, space_options
from advisor.topology import probe as topology

if TYPE_CHECKING:
    from advisor.answers import Answer
    from advisor.kernels.spec import KernelSpec
    from advisor.kernels.verify import Row
    from advisor.lookup import Policy
    from advisor.search.known import Past
    from advisor.search.log import Log
    from advisor.search.request import Outcome, Progress, Request

HELD_OUT_SHARE = 0.15
"""Of a budget, kept for the races at sizes that were not tuned."""

QUICK_BUDGET_S = 30.0
"""Budget of `--quick` where none is given: an answer before the reader looks away, also on a busy machine."""

MOST_HELD_OUT = 6
"""Sizes held out: enough for a worst case to mean something, few enough to take a small part of the time."""

OUT_OF_TIME = ("the time is used", "interrupted")
"""Why a search stopped, where more time would have taken it further."""

TUNER_WAIT_S = 3600.0
"""How long a second tuner waits for the first: two that measure at once would measure each other."""


class TuneRequest(NamedTuple):
    """What `advisor tune` is asked. `shape` has the entries that were given; the kernel's defaults fill the rest."""

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


class TuneResult(NamedTuple):
    """One kernel's tuning. `table` None and `missing` not empty where no table could be made or not all was done.

    `failed`: nothing came of it, and neither more time nor --resume would help.
    """

    kernel: str
    outcome: Outcome
    table: Table | None
    table_path: str
    log_path: str
    missing: str
    notes: tuple[str, ...]
    failed: bool = False


def kernel_names(text: str, kernel_dirs: Sequence[str] = (), tabled: Sequence[str] = ()) -> tuple[str, ...]:
    """The kernels that a word list names.

    Args:
        text: names separated by commas, or `all`.
        kernel_dirs: folders with further kernels.
        tabled: kernels that may be named since there is a table of them.

    Raises:
        UnknownName: no such kernel.
    """
    known = tuple(dict.fromkeys([*registry.kernels(kernel_dirs), *tabled]))
    if text == "all":
        return known
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names or (text,):
        if name not in known:
            raise UnknownName("no such kernel", got=name, allowed=f"{', '.join(known)}, all")
    return names


# --- probe ---


def folder_of(machine: Machine) -> str:
    """Where this machine's description, log and tables lie."""
    return paths.machine_dir(machine.hardware_id, machine.limits_id)


def remember(machine: Machine) -> str:
    """Keep the description of the machine at hand beside its tables.

    Returns:
        A note for people: where results had to go, or why nothing could be kept; empty when all is as expected.
    """
    path = os.path.join(folder_of(machine), "machine.json")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        scratch = f"{path}.{os.getpid()}"
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(topology.machine_json(machine) + "\n")
        os.replace(scratch, path)
    except OSError as error:
        return f"the description could not be kept in {path}: {error.strerror}; set ADVISOR_HOME to another folder"
    return paths.home_note()


# --- tune ---


def tune(request: TuneRequest, progress: Progress) -> list[TuneResult]:
    """Tune every kernel of a request, one after another, each with its share of the budget; Ctrl-C ends all of it.

    Raises:
        BadInput: a size, shape or compiler makes no sense; no compiler; no place for the results.
        Busy: another tuner held this machine for over an hour.
    """
    machine = topology.probe()
    for kernel in request.kernels:  # whatever makes no sense is refused before hours are spent on the others
        _request(request, kernel, machine, None)
    paths.writable(folder_of(machine))
    remember(machine)
    results: list[TuneResult] = []
    with alone(progress):
        for kernel in request.kernels:
            results.append(_tune_one(request, kernel, machine, progress))
            if results[-1].outcome.interrupted:
                break
    return results


@contextlib.contextmanager
def alone(progress: Progress, wait_s: float = TUNER_WAIT_S) -> Iterator[None]:
    """Hold the machine: one tuner at a time. The lock ends with the process, however that ends.

    Raises:
        Busy: another tuner held it for all of `wait_s`.
    """
    folder = paths.writable(paths.state_dir())
    lock = FileLock(os.path.join(folder, "tuner.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.stage("waiting: another tuner is measuring on this machine", None)
        try:
            lock.acquire(timeout=wait_s)
        except Timeout:
            raise Busy(
                "one tuner measures at a time", got=lock.lock_file, next_step="wait for the other one, or end it"
            ) from None
    try:
        yield
    finally:
        lock.release()


def _tune_one(asked: TuneRequest, kernel: str, machine: Machine, progress: Progress) -> TuneResult:
    from advisor.kernels.pool import WorkerPool
    from advisor.search.known import past
    from advisor.search.log import Log
    from advisor.search.tune import tune as search

    whole_s = QUICK_BUDGET_S if asked.quick and asked.budget_s is None else asked.budget_s
    budget_s = None if whole_s is None else whole_s / len(asked.kernels)
    begun = time.monotonic()
    request = _request(asked, kernel, machine, budget_s)
    folder = folder_of(machine)
    log_path, table_path = os.path.join(folder, "measurements.jsonl"), os.path.join(folder, f"{kernel}.table.json")
    before = past(log_path, request)
    with Log(log_path) as log, WorkerPool(machine, request.spec, request.variants, asked.seed) as pool:
        outcome = search(request, pool, log, progress)
        table = _learn(before, outcome, request, asked)
        if table is not None and not outcome.interrupted and not asked.exhaustive:
            until = None if budget_s is None else begun + budget_s
            tuning = _Tuning(request, pool, log, progress, outcome, until, before)
            table, interrupted = _hold_out(tuning, table)
            outcome = outcome._replace(interrupted=interrupted)
    notes = [*outcome.notes, *before.notes]
    if table is not None:
        table, notes = _save(table_path, table, notes)
    missing, failed = _missing(outcome, request, table)
    return TuneResult(kernel, outcome, table, table_path, log_path, missing, tuple(notes), failed)


def _request(asked: TuneRequest, kernel: str, machine: Machine, budget_s: float | None) -> Request:
    from advisor.search.request import Options, Request

    spec = registry.spec(kernel, asked.kernel_dirs)
    shape = dict(asked.shape)
    problems = tuple(spec.problem(n, dtype=asked.dtype, **shape) for n in asked.sizes)
    check_memory(spec, problems)
    found = variants(kernel, asked.kernel_dirs)
    for variant in found:
        check_expressions(variant, problems)
    options = Options(
        space=_space(machine, asked),
        budget_s=None if budget_s is None else budget_s * (1 - HELD_OUT_SHARE),
        exhaustive=asked.exhaustive,
        quick=asked.quick,
        seed=asked.seed,
        resume=asked.resume,
    )
    session = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    return Request(machine, spec, found, problems, options, session, machine.environment)


def check_memory(spec: KernelSpec, problems: Sequence[Problem]) -> None:
    """Refuse sizes whose operands cannot be held here, before time is spent on the others.

    Raises:
        BadInput: with the largest size that fits, roughly.
    """
    room = room_bytes()
    usable = math.inf if room is None else USABLE * room
    large = [problem for problem in problems if need_bytes(spec, problem) > usable]
    if large:
        need = need_bytes(spec, large[0])
        raise BadInput(
            "the operands must fit into memory",
            got=f"n = {large[0].n}, which needs {need / 2**30:.3g} GiB",
            allowed=f"{usable / 2**30:.3g} GiB, about n = {max(1, int(large[0].n * usable / need))}",
            next_step="ask for smaller sizes, or a smaller shape",
        )


def _space(machine: Machine, asked: TuneRequest) -> SpaceOptions:
    options = space_options(machine, asked.oversubscribe)
    if asked.compilers == "all":
        return options
    if asked.compilers == "first":
        return options._replace(compilers=options.compilers[:1])
    wanted = [name.strip() for name in asked.compilers.split(",")]
    known = [tool.name for tool in options.compilers]
    for name in wanted:
        if name not in known:
            raise BadInput("no such compiler here", got=name, allowed=f"{', '.join(known)}, first, all")
    return options._replace(compilers=tuple(tool for tool in options.compilers if tool.name in wanted))


def _learn(before: Past, outcome: Outcome, request: Request, asked: TuneRequest) -> Table | None:
    """The table of an outcome and of what earlier runs found at other n; None where not one race ended."""
    from advisor.policy.learn import Made, learn

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
            "seed": asked.seed,
        }
    )
    verdicts, trials = [*before.verdicts, *outcome.verdicts], [*before.trials, *outcome.trials]
    return learn(request.machine, verdicts, trials, Made(created, provenance), [*before.stolen, *outcome.stolen])


class _Tuning(NamedTuple):
    """What a held-out race needs of the tuning that went before. `until` on the monotonic clock."""

    request: Request
    pool: Any
    log: Log
    progress: Progress
    outcome: Outcome
    until: float | None
    before: Past


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

    def pick(problem: Problem) -> Any:
        return choose(best_section(table, problem.n), problem.n)

    plan = HoldOut(pick, tuple(first._replace(n=n) for n in sizes), tuning.outcome.verdicts, tuning.until)
    held = hold_out(request, tuning.pool, tuning.log, plan, tuning.progress)
    return with_heldout(table, [*tuning.before.verdicts, *held.verdicts]), held.interrupted


def best_section(table: Table, n: int) -> Section:
    """The section (process part) whose choice is expected to be fastest near n; the first among equals."""

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


def result_json(result: TuneResult) -> dict[str, Any]:
    """The document of `advisor tune --json`."""
    outcome = result.outcome
    finals = [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]
    best = []
    for verdict in finals:
        standing = next(s for s in verdict.standings if s.choice == verdict.winner)
        figures = standing.summary
        best.append(
            {
                "n": verdict.problem.n,
                "choice": codec.to_json(verdict.winner),
                "p25_ns": figures.p25_ns if figures else None,
                "ci95_ns": list(figures.ci95_ns) if figures else None,
            }
        )
    document = {
        "kernel": result.kernel,
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


# --- recommend ---


def recommend(
    kernels: str, sizes: Sequence[int], axes: dict[str, Any], machine: str | None
) -> tuple[Policy, list[tuple[Answer, int]]]:
    """The answers for every kernel, tabled shape and size, under the process part that is best for each.

    Args:
        kernels: names, comma separated; `all`: every kernel that has a table.
        sizes: swept sizes.
        axes: entries of the shape, dtype; narrows which tables answer.
        machine: path of another machine's description; None: the machine at hand.

    Returns:
        The policy (for its notes), and (answer, n) pairs.

    Raises:
        UnknownName: a kernel that is not installed and has no table.
    """
    from advisor.lookup import Policy

    policy = Policy.load(machine=machine)
    tabled = [problem["kernel"] for problem in policy.problems()]
    names = kernel_names(kernels, tabled=tabled)
    questions = [p for p in policy.problems() if p["kernel"] in names]
    questions = [p for p in questions if all(p.get(key, value) == value for key, value in axes.items())]
    if not questions:
        questions = [{"kernel": name, **axes} for name in names]
    return policy, [(policy.best(n=n, **question), n) for question in questions for n in sizes]


# --- verify ---


def verify(
    kernels: Sequence[str], sizes: Sequence[int], kernel_dirs: tuple[str, ...], progress: Progress
) -> list[tuple[str, Row]]:
    """Every variant of the kernels against its DNF, on the edge problems and the sizes given.

    Returns:
        (kernel, row) pairs in the order checked.

    Raises:
        BadInput: no compiler, or a size that does not fit into memory.
    """
    from advisor.kernels.verify import rows

    machine = topology.probe()
    space_options(machine)  # without a compiler nothing can be checked, and that is no success
    found: list[tuple[str, Row]] = []
    for kernel in kernels:
        spec = registry.spec(kernel, kernel_dirs)
        problems = [*spec.edges(), *(spec.problem(n) for n in sizes)]
        check_memory(spec, problems)
        known = variants(kernel, kernel_dirs)
        for variant in known:
            check_expressions(variant, problems)
        progress.stage(f"verify {kernel}", None)
        for row in rows(machine, spec, known, problems):
            found.append((kernel, row))
            progress.advance(f"{row.variant} n={row.problem.n}")
    return found


def verified_json(kernel: str, row: Row) -> dict[str, Any]:
    """One row of `advisor verify --json`."""
    data = codec.to_json(row)
    if not isinstance(data, dict):  # rows are records
        raise AdvisorError("a row must be a record", got=row)
    return {"kernel": kernel, **data}
