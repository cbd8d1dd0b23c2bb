"""Tables of published machines: from the figures that others printed, as CSV, through the learner.

A folder of a published machine holds machine.json (what was published of it, no more), CSV files of figures with their
source in the first line, and the tables that this module makes of them. The name of a CSV file is that of its kernel,
alone or followed by `_` and any words; its columns say what it holds:

    n,seconds_64_threads,seconds_128_threads            the time of each team
    n,best_threads,speedup_at_best_vs_1_thread,...      the best team; the others' times follow from the printed ratios
    n,naive_seconds,fused_seconds                       two programs at the number of threads in the file's name
    threads,naive_seconds,fused_seconds                 the same at the n in the file's name
    n_low,n_high,better_threads,other_threads           which of two teams is faster in a range of n, and no time: the
                                                        kernel's only file, its ranges ascending and without a gap

Nothing is decided here: figures become races, and `learn` finds the winners. Source of the figures: Mullin and Hains,
Validating Memory-Optimal Transformer Kernels on Real Hardware, 2026.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from advisor import codec, tablefile
from advisor.errors import BadInput, Missing
from advisor.kernels import registry
from advisor.policy.learn import Made, learn
from advisor.policy.store import locked, put, with_id
from advisor.policy.workload import LARGEST_N
from advisor.records import (
    Build,
    Choice,
    Machine,
    Pairs,
    Problem,
    Process,
    Row,
    Section,
    Standing,
    Summary,
    Table,
    Team,
    Verdict,
    pairs,
)
from advisor.topology.placement import UNPINNED
from advisor.words import many

BASIS = "PUBLISHED"

PUBLISHED_ON = "2026-09-29T00:00:00Z"
"""Date of the paper, and so of its tables: made again they are the same, byte for byte."""

DTYPES = {"decode": "float32"}
"""Kernel -> element type. Source: the paper, sections 3 to 5; all others are float64."""

SHAPE = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
"""Source: the paper: B = 2, D = 64."""

MOST_THREADS = 1 << 16
"""More are no team of one machine."""

NOT_CAUSAL = {"forward", "fused"}
"""Kernels with a flag for causal attention, which the paper's have not."""

UNKNOWN = "unknown"
PROCESS = Process(UNKNOWN, "default", None, "default")
"""Nothing is published on how threads waited or where memory lay: what a runtime does when nothing is set."""


class Figure(NamedTuple):
    """One printed figure: a program and its threads at one n; `seconds` None where only the winner is told.

    `apart`: the thread count that a question must name to be answered from it; None: it is of the general question.
    """

    kernel: str
    program: str
    threads: int
    n: int
    seconds: float | None
    apart: int | None = None


class Told(NamedTuple):
    """What one CSV file says. `winners`: (n, threads) where the faster team was told and no time. `whole`: what is
    between the n is spoken of too."""

    figures: tuple[Figure, ...]
    winners: tuple[tuple[int, int], ...] = ()
    whole: bool = False


def tables_of(folder: str) -> tuple[Table, ...]:
    """The tables that a folder's CSV files make, one a kernel, in the order of their names.

    Raises:
        Missing: no machine.json, or no CSV file.
        BadInput: one of them cannot be read.
    """
    machine = _machine(folder)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".csv"))
    if not names:
        raise Missing("a published machine has CSV files of figures", got=folder)
    told: dict[str, list[tuple[str, Told]]] = {}
    for name in names:
        told.setdefault(kernel_of(name), []).append((name, read_figures(os.path.join(folder, name))))
    for found in told.values():
        if len(found) > 1 and any(one.whole for _, one in found):
            raise BadInput("a file of ranges is the only one of its kernel", got=", ".join(name for name, _ in found))
    return tuple(_table(machine, kernel, found) for kernel, found in sorted(told.items()))


def write_tables(folder: str) -> tuple[str, ...]:
    """Make the tables of a folder again, in place. Returns their paths.

    Raises:
        Missing, BadInput: see `tables_of`; then none is written.
    """
    paths = []
    for table in tables_of(folder):
        paths.append(os.path.join(folder, f"{table.kernel}{tablefile.SUFFIX}"))
        with locked(paths[-1]):
            put(paths[-1], table)
    return tuple(paths)


# --- reading ---


def kernel_of(name: str) -> str:
    """The kernel that the name of a CSV file begins with.

    Raises:
        BadInput: there is no such kernel.
    """
    stem, known = name.removesuffix(".csv"), registry.kernels()
    found = [kernel for kernel in known if f"{stem}_".startswith(f"{kernel}_")]
    if not found:
        raise BadInput("a file of figures begins with the name of its kernel", got=name, allowed=", ".join(known))
    return max(found, key=len)


def read_figures(path: str) -> Told:
    """What one CSV file says.

    Raises:
        BadInput: its name or its columns are none of those known, or a number makes no sense.
    """
    name = os.path.basename(path)
    kernel = kernel_of(name)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader([line for line in file if not line.startswith("#")]))
        columns = set(rows[0]) if rows else set()
        reader = next((reader for needed, reader in _READERS if needed <= columns), None)
        if reader is not None:
            return _sensible(reader(kernel, name, rows))
    except (TypeError, ValueError, AttributeError, ArithmeticError, csv.Error, OSError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} must hold numbers in every column", next_step=str(error)) from None
    raise BadInput(
        f"{path} must have columns that are known", got=sorted(map(str, columns)), next_step="see published.py"
    )


def _sensible(told: Told) -> Told:
    """What a file says, where all of it can be.

    Raises:
        ValueError: naming the figure.
    """
    if not told.figures:
        raise ValueError("there is no figure in it")
    for one in told.figures:
        known = one.seconds is None or 0 < one.seconds < math.inf
        if not (1 <= one.n <= LARGEST_N and 1 <= one.threads <= MOST_THREADS and known):
            raise ValueError(f"n = {one.n} on {many(one.threads, 'thread')} in {one.seconds} s cannot be")
    return told


def _ranges(kernel: str, name: str, rows: Sequence[dict[str, str]]) -> Told:
    figures, winners, reached = [], [], None
    for row in rows:
        low, high = int(row["n_low"]), int(row["n_high"])
        better, other = int(row["better_threads"]), int(row["other_threads"])
        if low > high or better == other or reached not in (None, low - 1):
            raise ValueError(f"{low}..{high} on {better} or {many(other, 'thread')} does not follow n = {reached}")
        reached = high
        for n in (low, high):
            winners.append((n, better))
            figures += [Figure(kernel, kernel, threads, n, None) for threads in (better, other)]
    return Told(tuple(figures), tuple(winners), whole=True)


def _best(kernel: str, name: str, rows: Sequence[dict[str, str]]) -> Told:
    """Times of one thread, of the best team and of all cores, as the printed ratios give them."""
    figures = []
    for row in rows:
        n, one_s = int(row["n"]), float(row["seconds_1_thread"])
        best_s = one_s / float(row["speedup_at_best_vs_1_thread"])
        most_s = best_s * float(row["slowdown_of_128_threads_vs_best"])
        teams = {1: one_s, 128: most_s, int(row["best_threads"]): best_s}
        figures += [Figure(kernel, kernel, threads, n, seconds) for threads, seconds in teams.items()]
    return Told(tuple(figures))


def _programs(kernel: str, name: str, rows: Sequence[dict[str, str]]) -> Told:
    """Two programs: by threads at one n, which also says which team is best there, or over n for one team."""
    figures = []
    by_threads = "threads" in rows[0]
    for row in rows:
        threads = int(row["threads"]) if by_threads else _number(r"_(\d+)threads", name)
        n = _number(r"_n(\d+)", name) if by_threads else int(row["n"])
        for program in ("naive", "fused"):
            seconds = float(row[f"{program}_seconds"])
            figures.append(Figure(kernel, program, threads, n, seconds, threads))
            if by_threads:
                figures.append(Figure(kernel, program, threads, n, seconds))
    return Told(tuple(figures))


def _teams(kernel: str, name: str, rows: Sequence[dict[str, str]]) -> Told:
    figures = []
    for row in rows:
        for column, value in row.items():
            if column != "n":
                threads = _number(r"^seconds_(\d+)_threads$", column)
                figures.append(Figure(kernel, kernel, threads, int(row["n"]), float(value)))
    return Told(tuple(figures))


def _number(pattern: str, words: str) -> int:
    found = re.search(pattern, words)
    if found is None:
        raise ValueError(f"{words} does not say what {pattern} looks for")
    return int(found.group(1))


_READERS = (
    ({"n_low", "n_high", "better_threads", "other_threads"}, _ranges),
    (
        {"n", "best_threads", "speedup_at_best_vs_1_thread", "slowdown_of_128_threads_vs_best", "seconds_1_thread"},
        _best,
    ),
    ({"naive_seconds", "fused_seconds"}, _programs),
    ({"n"}, _teams),
)
"""Columns -> reader, the most telling ones first."""


# --- through the learner ---


def _machine(folder: str) -> Machine:
    document = tablefile.read_json(os.path.join(folder, "machine.json"))
    codec.check_schema(document, "machine", folder)
    machine: Machine = codec.from_json(Machine, document, "machine.json")
    return machine


def _choice(figure: Figure) -> Choice:
    return Choice(Build(figure.program, UNKNOWN, (), UNKNOWN, UNKNOWN), Team(figure.threads, UNPINNED), PROCESS)


def _table(machine: Machine, kernel: str, told: Sequence[tuple[str, Told]]) -> Table:
    """The learned table of one kernel, its sections marked as published."""
    figures = [figure for _, one in told for figure in one.figures]
    winners = {n: threads for _, one in told for n, threads in one.winners}
    verdicts = [_verdict(group, winners) for group in _groups(figures)]
    made = Made(PUBLISHED_ON, pairs({"files": tuple(name for name, _ in told), "source": _SOURCE}), ())
    learned = learn(machine, sorted(verdicts, key=lambda v: (v.problem.shape, v.problem.n)), [], made)
    whole = any(one.whole for _, one in told)
    return with_id(learned._replace(sections=tuple(_published(s, whole) for s in learned.sections)))


_SOURCE = "Mullin and Hains, Validating Memory-Optimal Transformer Kernels on Real Hardware, 2026"


def _groups(figures: Sequence[Figure]) -> list[list[Figure]]:
    """The figures of one question each; where two files print the same call, the one with more digits counts in all."""
    exact: dict[tuple[str, int, int], float | None] = {}
    for one in figures:
        call = one.program, one.threads, one.n
        exact[call] = max(exact.get(call), one.seconds, key=_digits)
    found: dict[tuple[int, int], dict[tuple[str, int], Figure]] = {}
    for one in figures:
        same = found.setdefault((one.apart or 0, one.n), {})
        same[one.program, one.threads] = one._replace(seconds=exact[one.program, one.threads, one.n])
    return [list(group.values()) for group in found.values()]


def _digits(seconds: float | None) -> int:
    return 0 if seconds is None else len(str(seconds))


def _verdict(group: Sequence[Figure], winners: dict[int, int]) -> Verdict:
    """The printed figures of one question as the race that they were. The default takes every core."""
    first = group[0]
    problem = Problem(first.kernel, DTYPES.get(first.kernel, "float64"), _shape(first), first.n)
    times = {_choice(figure): figure.seconds for figure in group}
    if first.n in winners:
        winner = next(_choice(figure) for figure in group if figure.threads == winners[first.n])
    else:
        winner = min(times, key=lambda choice: times[choice] or 0.0)
    default = max(
        times, key=lambda choice: (choice.team.threads if choice.team else 0, choice.build.variant == "naive")
    )
    standings = tuple(
        Standing(choice, "winner" if choice == winner else "slower", _summary(seconds), None, None)
        for choice, seconds in times.items()
    )
    return Verdict(problem, "final", winner, default, 1, standings)


def _shape(figure: Figure) -> Pairs:
    more = {"causal": 0} if figure.kernel in NOT_CAUSAL else {}
    return pairs({**SHAPE, **more, **({"threads": figure.apart} if figure.apart else {})})


def _summary(seconds: float | None) -> Summary | None:
    """One printed figure in the place of statistics, for the learner alone: no table keeps it."""
    if seconds is None:
        return None
    ns = round(seconds * 1e9, 3)
    return Summary(ns, ns, ns, ns, (ns, ns), 1)


def _published(section: Section, whole: bool) -> Section:
    """The section with its single figures in the place of points that would claim statistics."""
    rows = tuple(_row(row, section.tuned_n, whole) for row in section.rows)
    extra = pairs({**dict(section.extra), "basis": BASIS})
    wins = pairs({name: found for name, found in section.wins if name == section.objective})
    return section._replace(rows=rows, default_points=(), alternatives=(), wins=wins, extra=extra)


def _row(row: Row, tuned: Sequence[int], whole: bool) -> Row:
    own = [point for point in row.points if row.low <= point.n <= row.high and point.n in tuned]
    figures = tuple({"n": point.n, "time_ns": point.summary.p25_ns} for point in own)
    extra = {**dict(row.extra), **({"published": figures} if figures else {}), **({"whole": True} if whole else {})}
    return row._replace(points=(), extra=pairs(extra))
