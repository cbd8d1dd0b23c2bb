"""What people see of long work: progress on a terminal, quiet lines elsewhere, and tables of results."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from advisor import render
from advisor.doubts import FEW
from advisor.policy.launch import duration, process_words
from advisor.policy.launch.sheet import held_out
from advisor.words import many

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from advisor.doctor import Finding
    from advisor.kernels.verify import Row
    from advisor.records import Choice, Process, Section, Verdict
    from advisor.search.objective import Figures
    from advisor.search.request import Progress
    from advisor.tuning_result import TuneResult

FAILURES_SHOWN = 4
"""Of one variant: a broken one fails in hundreds of checks for the same reason."""


class TerminalProgress:
    """One line with a bar, what was just measured, and at most how much longer it takes."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None, text="")
        self._until: float | None = None

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins."""
        self._bar.reset(self._task, description=name, total=total, text="")

    def advance(self, text: str) -> None:
        """One step was done."""
        left = "" if self._until is None else f"at most {max(0.0, self._until - time.monotonic()):.0f} s left  "
        self._bar.update(self._task, advance=1, text=f"{left}{text[:60]}")

    def seconds_left(self, seconds: float | None) -> None:
        """At most so much longer for the whole run."""
        self._until = None if seconds is None else time.monotonic() + seconds


class QuietProgress:
    """A line a stage, for logs and pipes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins."""
        self._say(f"{name}: at most {many(total, 'step')}" if total else name)

    def advance(self, text: str) -> None:
        """One step was done."""

    def seconds_left(self, seconds: float | None) -> None:
        """At most so much longer for the whole run."""
        if seconds is not None:
            self._say(f"  at most {seconds:.0f} s left")


@contextlib.contextmanager
def progress(say: Callable[[str], None]) -> Iterator[Progress]:
    """Progress for whoever watches standard error: a bar on a terminal, lines elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield QuietProgress(say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield TerminalProgress(bar)


def choice_words(choice: Choice, with_tools: bool = True) -> str:
    """A choice in a few words: variant, knobs, and compiler and flag set where they are wanted."""
    knobs = " ".join(f"{name.removeprefix('ADV_')}={value}" for name, value in choice.build.knobs)
    tools = [choice.build.compiler, choice.build.flags] if with_tools else []
    return " ".join(filter(None, [choice.build.variant, knobs, *tools]))


def _wait_words(choice: Choice) -> str:
    return process_short(choice.process)


def process_short(process: Process | None) -> str:
    """A process part in the few words of a narrow column, such as `default, spin 10000`; `-` on a device."""
    if process is None:
        return "-"
    return process_words(process).removeprefix("wait policy ").replace("GOMP_SPINCOUNT=", "spin ")


def tuned(result: TuneResult) -> str:
    """The result of a tuning for people: a line a size, then what it cost and where it lies."""
    from advisor.search.objective import figures_of
    from advisor.tuning_result import chosen

    finals = [verdict for verdict in result.outcome.verdicts if verdict.purpose == "final"]
    picked = [(verdict, chosen(result, verdict)) for verdict in finals]
    tools = {(choice.build.compiler, choice.build.flags) for _, choice in picked}
    table = render.table()
    on_host = any(choice.team for _, choice in picked)
    for name in ("n", "time", "vs default", *(("shared core", "threads") if on_host else ())):
        table.add_column(name, justify="right")
    for name in (*(("wait policy",) if on_host else ()), "run", "next best"):
        table.add_column(name)
    for verdict, choice in picked:
        known = {one.choice: one for one in figures_of(verdict, result.outcome.stolen, result.outcome.energy)}
        table.add_row(*_tuned_row(verdict, choice, known, len(tools) > 1))
    same = [f"built with {_tool_words(*tool)}" for tool in tools if len(tools) == 1]
    where = [f"on {result.device}"] if result.device else []
    return "\n".join([render.rendered(table), *_regime_words(result), *where, *same, *_tuned_facts(result)])


def all_tuned(results: Sequence[TuneResult]) -> str:
    """The results of a tuning of several kernels, each under its name; what holds for all is said once."""
    parts, told = [], set()
    for result in results:
        lines = [line for line in tuned(result).splitlines() if line not in told]
        told |= {f"log   {result.log_path}", *result.notes}
        parts.append("\n".join([_name_and_shape(result), *lines]))
    return "\n\n".join(parts)


def _name_and_shape(result: TuneResult) -> str:
    problem = next((report.problem for report in result.outcome.reports), None)
    if problem is None:
        return result.kernel
    shape = " ".join(f"{name}={value}" for name, value in problem.shape)
    return f"{result.kernel}  {problem.dtype}  {shape}"


def _regime_words(result: TuneResult) -> list[str]:
    """What the choices are best at and in which regime, where that is not the usual."""
    regimes = {report.problem.regime for report in result.outcome.reports} - {"warm"}
    words = [f"chosen for {result.objective}"] if result.objective != "latency" else []
    return [", ".join([*words, *(f"{regime} cache" for regime in sorted(regimes))])] if words or regimes else []


def _tool_words(compiler: str, flags: str) -> str:
    return compiler if flags == "none" else f"{compiler}, flags {flags}"


def _tuned_row(verdict: Verdict, choice: Choice, known: Mapping[Choice, Figures], with_tools: bool) -> list[str]:
    own = known.get(choice)
    shared = f"{own.fragility:.3g}x" if own and own.fragility is not None else "-"
    on_host = [shared, str(choice.team.threads), _wait_words(choice)] if choice.team else []
    return [
        str(verdict.problem.n),
        duration(own.quiet.p25_ns) if own and own.quiet else "-",
        _gain_words(verdict, choice),
        *on_host,
        choice_words(choice, with_tools),
        _margin(verdict) if choice == verdict.winner else _behind(verdict, choice),
    ]


def _gain_words(verdict: Verdict, choice: Choice) -> str:
    """How many times faster than the DEFAULT; no number where one of the two failed or was contended."""
    standing = {s.choice: s for s in verdict.standings}
    pair = [standing.get(verdict.default), standing.get(choice)]
    if any(one is not None and one.contended for one in pair):
        return "contended"
    times = [one.summary.p25_ns if one and one.summary and one.outcome != "failed" else None for one in pair]
    default, own = times
    return f"{default / own:.2f}x" if default and own else "-"


def _behind(verdict: Verdict, choice: Choice) -> str:
    """Its time over the race winner's, in words; what the table says may have been in no race."""
    from advisor.search.settled import is_settled

    ratio = next((s.ratio for s in verdict.standings if s.choice == choice), None)
    if ratio is not None and not is_settled(verdict):
        return FEW
    return "not raced" if ratio is None else f"{ratio - 1:+.1%} of the fastest"


def _margin(verdict: Verdict) -> str:
    """By how much the race's winner leads; no number after fewer rounds than a ranking needs."""
    from advisor.search.settled import is_settled

    others = [s for s in verdict.standings if s.choice != verdict.winner and s.ratio is not None]
    if not others:
        return "nothing else ran"
    if not is_settled(verdict):
        return FEW
    nearest = min(others, key=lambda s: s.ratio or 0.0)
    low, high = nearest.ratio_ci95 or (float("nan"), float("nan"))
    words = "a tie" if nearest.outcome == "tie" else f"{(nearest.ratio or 1.0) - 1:+.1%}"
    return f"{words} [{low:.3f}, {high:.3f}]"


def _tuned_facts(result: TuneResult) -> list[str]:
    outcome = result.outcome
    seconds, counts = dict(outcome.seconds), dict(outcome.counts)
    failed = ", ".join(f"{count} {status}" for status, count in counts.items() if count and status != "ok")
    lines = [
        f"{counts['ok']} of {many(outcome.space_size, 'choice')} measured{f' ({failed})' if failed else ''} in "
        f"{seconds['total']:.1f} s: {seconds['in_kernel']:.1f} s in kernels, {seconds['compile']:.1f} s compiling, "
        f"{seconds['overhead']:.1f} s verifying, warming up and deciding"
    ]
    for regret in outcome.regrets:
        low, high = regret.ratio_ci95
        lines.append(
            f"n={regret.problem.n}: the searched choice takes {regret.ratio:.3f} of the best known time "
            f"[{low:.3f}, {high:.3f}]"
        )
    if result.table is not None:
        found = [section.heldout for section in _answering(result) if section.heldout]
        if found:
            worst = max(found, key=lambda heldout: heldout.worst)
            sizes = ", ".join(map(str, worst.n))
            lines.append(f"{held_out(len(worst.n), worst.worst)} (n = {sizes})")
        lines.append(f"table {result.table_path}")
    lines += _counted(result)
    return [*lines, f"log   {result.log_path}", *result.notes]


def _counted(result: TuneResult) -> list[str]:
    """What the winners move, a line a size; why nobody could count, a line a reason."""
    from advisor import moved
    from advisor.tuning_result import timed_ns

    lines = []
    for one in result.counted:
        if one.counters is not None:
            figures = {**one.counters.call._asdict(), "caches": one.counters.caches}
            lines.append(f"n={one.problem.n}: {moved.words(figures, timed_ns(result, one))}")
    why: dict[str, list[str]] = {}
    for one in result.counted:
        if one.none is not None:
            why.setdefault(moved.refused(one.none.reason, one.none.remedy), []).append(str(one.problem.n))
    return [*lines, *(f"n = {', '.join(sizes)}: {words}" for words, sizes in why.items())]


def _answering(result: TuneResult) -> list[Section]:
    """The sections of what was tuned now that `recommend` answers from at some tuned n."""
    from advisor.tuning_result import best_section, of_shape

    if result.table is None:
        return []
    table = of_shape(result.table, result.outcome.reports[0].problem)
    own = table.sections
    best = [best_section(table, n) for n in sorted({n for section in own for n in section.tuned_n})]
    return [section for section in own if section in best]


def verified(rows: Sequence[tuple[str, Row]]) -> str:
    """The result of `verify` for people.

    A line a variant, dtype and draw of inputs: the error nearest its tolerance, or furthest past it, beside that one.
    Where a variant rounds more than the others a column says which arithmetic the tolerance is for. Then what it was
    made with, and the failures.
    """
    table = render.table()
    told = ("arithmetic",) if any(row.arithmetic != "real" for _, row in rows) else ()
    for name in ("kernel", "variant", "dtype", "draw", *told, "checks", "worst error", "tolerance", "at", "status"):
        table.add_column(name, justify="right" if name in ("checks", "worst error", "tolerance") else "left")
    groups: dict[tuple[str, ...], list[Row]] = {}
    for kernel, row in rows:
        key = kernel, row.variant, row.problem.dtype, row.draw, *((row.arithmetic,) if told else ())
        groups.setdefault(key, []).append(row)
    for key in sorted(groups):
        table.add_row(*key, str(len(groups[key])), *_worst(groups[key]), _statuses(groups[key]))
    return "\n".join([render.rendered(table), *_made_with(rows), *_failures(rows)])


def _worst(rows: Sequence[Row]) -> tuple[str, str, str]:
    """Error, tolerance and place of the check that came nearest to its tolerance or went furthest past it."""
    known = [row for row in rows if row.error is not None and row.tolerance is not None]
    if not known:
        return "-", "-", "-"
    worst = max(known, key=lambda row: (row.error or 0.0) / (row.tolerance or 1e-300))
    threads = f", {many(worst.threads, 'thread')}" if worst.threads else ""
    return f"{worst.error:.1e}", f"{worst.tolerance:.1e}", f"n={worst.problem.n}{threads}"


def _made_with(rows: Sequence[tuple[str, Row]]) -> list[str]:
    """The tools of the checks that ran, one line."""
    flags: dict[str, dict[str, None]] = {}
    for _, row in rows:
        if row.status != "skipped":
            flags.setdefault(row.compiler, {})[row.flags] = None
    named = [f"{tool} ({', '.join(found)})" for tool, found in flags.items()]
    return [f"made with {', '.join(named)}"] if named else []


def _failures(rows: Sequence[tuple[str, Row]]) -> list[str]:
    """Some failures of each variant, and how many more there are."""
    failed: dict[tuple[str, str], list[Row]] = {}
    for kernel, row in rows:
        if row.status not in ("ok", "skipped"):
            failed.setdefault((kernel, row.variant), []).append(row)
    lines = []
    for (kernel, variant), found in failed.items():
        lines += [f"{row.status}: {kernel} {_check_words(row)}: {row.reason}" for row in found[:FAILURES_SHOWN]]
        more = len(found) - FAILURES_SHOWN
        lines += [f"and {more} more of {kernel} {variant}; --json has them all"] if more > 0 else []
    return lines


def _statuses(rows: Sequence[Row]) -> str:
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _check_words(row: Row) -> str:
    words = [row.variant, *(f"{name}={value}" for name, value in row.knobs), row.compiler, row.flags]
    shape = " ".join(f"{name}={value}" for name, value in row.problem.shape)
    place = f"n={row.problem.n} {shape} {row.problem.dtype}, {row.draw} inputs"
    return f"{' '.join(words)}, {many(row.threads, 'thread')}, {place}"


def examined(findings: Sequence[Finding]) -> str:
    """The result of `doctor` for people: a line a thing, its remedy below it."""
    lines = []
    for finding in findings:
        mark = "ok     " if not finding.remedy else "MISSING" if finding.needed else "note   "
        lines.append(f"{mark} {finding.what}: {finding.found}")
        lines += [f"        {finding.remedy}"] if finding.remedy else []
    return "\n".join(lines)
