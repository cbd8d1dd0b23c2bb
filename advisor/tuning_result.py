"""What came of a tuning: what has no answer and why, which choice the table gives, the document for programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import codec
from advisor.answers import interpolated
from advisor.records import Choice, Measurement, Problem, Section, Table, Verdict

if TYPE_CHECKING:
    from advisor.kernels.gpu.counts import Counting
    from advisor.policy.landing import Decision
    from advisor.search.request import Outcome, Request

OUT_OF_TIME = ("the time is used", "interrupted")
"""Why a search stopped, where more time would have taken it further."""


class TuneResult(NamedTuple):
    """One kernel's tuning. `table` None and `missing` not empty where no table could be made or not all was done.

    `failed`: nothing came of it, and neither more time nor --resume would help. `device`: the GPU in a few words.
    `counted`: what was counted of the winners, where that was asked for. `decision`: what became of it at the gate.
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
    decision: Decision | None = None


def of_shape(table: Table, problem: Problem) -> Table:
    """The table with the sections of a problem's dtype, shape and regime alone."""
    wanted = (problem.dtype, problem.shape, problem.regime)
    return table._replace(sections=tuple(s for s in table.sections if (s.dtype, s.shape, s.regime) == wanted))


def best_section(table: Table, n: int) -> Section:
    """The section of a table of one shape that answers at n, see `best_of`."""
    return best_of(table.sections, n)


def best_of(sections: Sequence[Section], n: int) -> Section:
    """The section (process part) from which `advisor recommend` answers at n, in an environment that sets no OpenMP
    variables: the rule of `Policy.best`, of records.

    At a tuned n one whose choice is the best of all, the plain one first; for other objectives by the nearest tuned n.
    Where no race tells, the plain one, unless another is expected to be faster near n by the landing bar.
    """
    from advisor.ranges import answering

    own = next((i for i, section in enumerate(sections) if _is_plain(section)), None)
    won = [section for section in sections if _won(section, n)]
    if won:
        return next(filter(_is_plain, won), won[0])
    return sections[answering([_expected(section, n) for section in sections], own)]


def _is_plain(section: Section) -> bool:
    """Whether its process part is what runs where nothing is set; on a device there is no other."""
    process = section.process
    return process is None or (process.wait_policy, process.spin, process.memory_policy) == ("default", None, "default")


def _won(section: Section, n: int) -> bool:
    near = min(section.tuned_n, key=lambda other: abs(math.log(other / n)))
    return near in dict(section.wins).get(section.objective, ()) and (near == n or section.objective != "latency")


def _expected(section: Section, n: int) -> float:
    """Time of what a section says at n, as `Policy.best` has it; infinite where none is known."""
    row = next((row for row in section.rows if row.low <= n <= row.high), None)
    own = () if row is None else tuple((point.n, point.summary.p25_ns) for point in row.points)
    return interpolated(own, n) or interpolated(_curve(section), n) or math.inf


def _curve(section: Section) -> tuple[tuple[int, float], ...]:
    """(n, ns) of what a section says at its tuned n, as far as known."""
    of = {(row.low, row.high): {p.n: p.summary.p25_ns for p in row.points} for row in section.rows}
    known = ((at, ns) for at in section.tuned_n for (low, high), ns in of.items() if low <= at <= high and at in ns)
    return tuple((at, ns[at]) for at, ns in known)


def missing(outcome: Outcome, request: Request, table: Table | None) -> tuple[str, bool]:
    """What has no answer and why, and whether nothing at all came of it, for another reason than time."""
    from advisor.search.request import NO_CHOICE

    done = {verdict.problem.n for verdict in outcome.verdicts if verdict.purpose == "final"}
    absent = [problem.n for problem in request.problems if problem.n not in done]
    if outcome.interrupted:
        return f"interrupted; no answer yet for n = {listed(absent)}; go on with --resume", False
    reasons = {n: failure(outcome.trials, n) for n in absent}
    ended = {report.problem.n for report in outcome.reports if report.stopped not in OUT_OF_TIME}
    broken = [n for n in absent if reasons[n] and n in ended]
    never = [report.problem.n for report in outcome.reports if report.stopped == NO_CHOICE]
    late = [n for n in absent if n not in (*broken, *never)]
    parts = [f"no choice ran at n = {listed(broken)} ({reasons[broken[0]]})"] if broken else []
    parts += [f"nothing can be tried at n = {listed(never)}"] if never else []
    tried = "".join(f" ({reasons[n]})" for n in late[:1] if reasons[n])
    parts += [f"no answer for n = {listed(late)}{tried}; a larger --budget or --resume finishes them"] if late else []
    return "; ".join(parts), table is None and not late


def listed(sizes: Sequence[int]) -> str:
    """Sizes for people."""
    return ", ".join(map(str, sizes)) or "none"


def failure(trials: Sequence[Measurement], n: int) -> str:
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


def timed_ns(result: TuneResult, one: Counting) -> float | None:
    """What a call of a counted choice took in its last race, without a profiler; None where it had none."""
    from advisor.search.objective import figures_of

    races = [v for v in result.outcome.verdicts if v.purpose == "final" and v.problem == one.problem]
    quiet = [known.quiet for race in races for known in figures_of(race, (), ()) if known.choice == one.choice]
    return next((summary.p25_ns for summary in reversed(quiet) if summary is not None), None)


def chosen(result: TuneResult, verdict: Verdict) -> Choice:
    """What the table says where a race was run, of whatever process part: what `advisor recommend` says there too.

    Neighbouring n may share a choice that is as good as the race's winner by the bound of docs/tables.md.
    """
    from advisor.policy.learn import choose
    from advisor.search.known import same_program
    from advisor.search.objective import picked

    winner = picked(verdict, result.objective, result.outcome.stolen, result.outcome.energy)
    own = of_shape(result.table, verdict.problem) if result.table else None
    if own is None or not any(verdict.problem.n in section.tuned_n for section in own.sections):
        return winner
    told = same_program(choose(best_section(own, verdict.problem.n), verdict.problem.n))
    return winner if told == same_program(winner) else told


def _landing_json(decision: Decision) -> dict[str, Any]:
    """What became of a tuning at the gate."""
    told = {name: getattr(decision, name) for name in ("verdict", "why", "gain", "bar", "lands")}
    return {**told, "added": list(decision.added)}


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
        "landing": None if result.decision is None else _landing_json(result.decision),
    }
    if outcome.regrets:
        document["regret"] = [
            {"n": r.problem.n, "ratio": r.ratio, "ratio_ci95": list(r.ratio_ci95)} for r in outcome.regrets
        ]
    return document
