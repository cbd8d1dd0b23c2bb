"""The gate between a tuning and its table: what stands there, what was raced against it, and what is kept of both.

`advisor.policy.landing` decides; this module gathers what it decides from, and carries it out.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import codec
from advisor.errors import AdvisorError
from advisor.policy import history, landing, ledger
from advisor.policy.landing import BAR, Decision, Incumbent
from advisor.policy.learn import choose
from advisor.policy.store import Ids, locked, usable
from advisor.records import Choice, Problem, Table
from advisor.search.known import same_program
from advisor.search.objective import picked
from advisor.tuning_result import best_section, of_shape

if TYPE_CHECKING:
    from advisor.policy.workload import Workload
    from advisor.search.known import Past
    from advisor.search.request import Outcome, Request


class Bar(NamedTuple):
    """What a candidate must beat the table by, and over which calls; without a workload all n that differ count."""

    least: float = BAR
    workload: Workload | None = None


class Landed(NamedTuple):
    """What a tuning comes to. `table`: the one that stands, where it stays as it is; None: one learned of `outcome`."""

    outcome: Outcome
    decision: Decision
    table: Table | None


def standing(path: str, ids: Ids) -> tuple[Table | None, tuple[str, ...]]:
    """The table that a file holds now, which is also kept in the history: it may have come from elsewhere; and notes.

    One that cannot be trusted, or is of another kernel or machine, is no incumbent, and is set aside before anything
    is measured.

    Args:
        path: of the table's file.
        ids: kernel and machine that it must be of.
    """
    with locked(path):
        table, notes = usable(path, ids)
        with suppress(OSError, AdvisorError):  # a disk that takes no history still takes tables
            history.keep(path, ids=ids)
    return table, notes


def picks(table: Table | None, problem: Problem) -> dict[int, Choice]:
    """What a table says at its tuned n of a problem's shape, of whatever process part is best there.

    One thread meets no barrier, so it races under the default process part alone, whichever section has it.
    """
    own = _own(table, problem)
    if own is None:
        return {}
    tuned = sorted({n for section in own.sections for n in section.tuned_n})
    return {n: same_program(choose(best_section(own, n), n)) for n in tuned}


def _own(table: Table | None, problem: Problem) -> Table | None:
    """The table with the measured sections of a problem's shape; None without any."""
    own = None if table is None else of_shape(table, problem)
    found = () if own is None else tuple(s for s in own.sections if "basis" not in dict(s.extra))
    return own._replace(sections=found) if own is not None and found else None


def keep(table: Table | None, problems: Sequence[Problem]) -> tuple[tuple[Problem, Choice], ...]:
    """What the table says at the problems of a request: these choices race."""
    known = picks(table, problems[0])
    return tuple((problem, known[problem.n]) for problem in problems if problem.n in known)


def landed_only(before: Past, table: Table | None, problem: Problem) -> Past:
    """What the log knows, with the table's own choices as winners: what did not land once stays out."""
    return before._replace(verdicts=landing.as_landed(before.verdicts, problem, picks(table, problem)))


# --- deciding ---


def incumbent(table: Table | None, request: Request) -> Incumbent:
    """What stands in the table for a request's shape, and what speaks against it."""
    first = request.problems[0]
    own = _own(table, first)
    if table is None or own is None:
        return Incumbent({})
    found = picks(table, first)
    at_hand = {(variant.name, variant.source_hash) for variant in request.variants}
    builds = {choice.build.variant: choice.build.source_hash for choice in found.values()}
    gone = [f"{name} of that source" for name, source in sorted(builds.items()) if (name, source) not in at_hand]
    return Incumbent(found, _changed(table, own, request), tuple(gone), own.sections[0].objective)


def _changed(table: Table, own: Table, request: Request) -> tuple[str, ...]:
    """What the rows of a shape depend on and is not as it was, each once."""
    from advisor.ranges import changed_fields

    site = _site(request)
    if site is None:
        return ()
    document = {**codec.to_json(table._replace(sections=())), "sections": []}
    sections = [codec.to_json(section) for section in own.sections]

    def changed(told: Any, row: Any) -> tuple[str, ...]:
        return changed_fields(site, document, told, row)

    return tuple(dict.fromkeys(word for told in sections for row in told["rows"] for word in changed(told, row)))


def _site(request: Request) -> Any:
    """The machine as it is now, from what the probe has just kept; None where that cannot be read."""
    from advisor.probing import folder_of
    from advisor.site import describe_file

    try:
        return describe_file(os.path.join(folder_of(request.machine), "machine.json"))
    except AdvisorError:
        return None


def judge(old: Incumbent, outcome: Outcome, request: Request, bar: Bar) -> Decision:
    """Whether what a run found takes the place of what stands.

    Args:
        old: what stands in the table.
        outcome: of the run, without what failed in a fresh process.
        request: what was run.
        bar: the least gain, and the workload.
    """
    from advisor.policy.workload import outside, spread

    objective = request.options.objective
    finals = [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]
    raced = {v.problem.n: picked(v, objective, outcome.stolen, outcome.energy) for v in finals}
    known = bar.workload.weights(request.spec.name) if bar.workload else {}
    weights = spread(known, sorted(raced))[0] if known and raced else {}
    compared = landing.compare(finals, old.picks, raced, weights if any(weights.values()) else {})
    added = sorted(set(raced) - set(old.picks))
    decision = landing.decide(old, compared, objective, added, bar.least)
    failed = tuple((v.problem.n, s.choice) for v in finals for s in v.standings if s.outcome == "failed")
    return decision._replace(failed=failed, outside=outside(known, list(raced)))


def land(table: Table | None, outcome: Outcome, request: Request, bar: Bar) -> Landed:
    """What a run comes to beside the table that stands.

    Args:
        table: what stands; None: nothing.
        outcome: of the run, without what failed in a fresh process.
        request: what was run.
        bar: the least gain, and the workload.

    Returns:
        Where the candidate does not land, an outcome in which the table's choices have won; an n at which they did not
        race is left out of it, so that the row there stays.
    """
    first = request.problems[0]
    old = incumbent(table, request)
    decision = judge(old, outcome, request, bar)
    if decision.lands:
        return Landed(outcome, decision, None)
    unraced = {one.n for one in decision.compared if one.ratio is None}
    left = [v for v in outcome.verdicts if v.purpose != "final" or v.problem.n not in unraced]
    kept = outcome._replace(verdicts=landing.as_landed(left, first, old.picks))
    own = _own(table, first)
    return Landed(kept, decision, own if decision.verdict != landing.EXTENDED else None)


# --- keeping ---


def record(decision: Decision, path: str, request: Request, table: Table) -> tuple[str, ...]:
    """Keep the table in the history, and the decision in the ledger. Returns what the user should know.

    A disk that takes no history still has the table.
    """
    now = datetime.datetime.now(datetime.UTC)
    line = ledger.entry(decision, request.problems[0], request.session, table.table_id, now)
    why = "" if decision.verdict in (landing.FIRST, landing.SAME) else f"landing: {decision.why}"
    told = tuple(filter(None, (why, decision.outside)))
    try:
        history.keep(path, now)
        ledger.append(os.path.dirname(os.path.abspath(path)), line)
    except (OSError, AdvisorError) as error:
        return *told, f"the table is saved, its history and ledger are not: {error}"
    return told
