"""The gate between a tuning and its table: what stands there, what was raced against it, and what is kept of both.

`advisor.policy.landing` decides at which n the candidate stands afterwards; this module gathers what it decides from.
The table is then learned of races in which nobody but the choices that are settled so has won.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import codec
from advisor.errors import AdvisorError
from advisor.policy import history, landing, ledger, store
from advisor.policy.landing import BAR, Decision, Incumbent
from advisor.policy.learn import choose
from advisor.policy.recall import recall
from advisor.records import Choice, Measurement, Problem, Row, Section, Table, Verdict
from advisor.search.known import same_program
from advisor.search.objective import figures_of
from advisor.search.settled import QUIET, weight
from advisor.tuning_result import best_section, of_shape

if TYPE_CHECKING:
    from advisor.policy.workload import Workload
    from advisor.search.known import Past
    from advisor.search.request import Outcome, Request


class Bar(NamedTuple):
    """What a candidate must beat the table by, and over which calls; without a workload all n that differ count."""

    least: float = BAR
    workload: Workload | None = None


class Stands(NamedTuple):
    """What answers before a tuning.

    Attributes:
        table: with the measured sections of the shape that is tuned; None: none has any.
        path: where that table lies: the user's own, or one that was shipped.
        replaces: what the user's own table has measured of the shape: what a landing replaces.
        notes: on a file that had to be set aside.
    """

    table: Table | None = None
    path: str = ""
    replaces: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()


class Landed(NamedTuple):
    """What a tuning comes to. `outcome`: what may be learned of it; `kept`: n and the choice that is settled there."""

    outcome: Outcome
    decision: Decision
    kept: tuple[tuple[int, Choice], ...]


# --- before the tuning ---


def standing(path: str, request: Request) -> Stands:
    """What answers for a request's shape now: the user's own table, else a shipped one.

    The user's own is also kept in the history, as it may have come from elsewhere. One that cannot be trusted, or that
    is of another machine, is no incumbent and is set aside.

    Raises:
        Busy: another writer held the lock of the table.
    """
    machine, first = request.machine, request.problems[0]
    ids = (first.kernel, machine.hardware_id, machine.limits_id)
    table, notes = None, tuple[str, ...]()
    if os.path.exists(path):
        with store.locked(path):
            table, notes = store.usable(path, ids)
    try:
        history.keep(path, ids=ids)
    except (OSError, AdvisorError) as error:  # a disk that takes no history still takes tables
        notes = (*notes, f"the history is not kept: {error}")
    own = _own(table, first)
    if own is not None:
        return Stands(own, path, own.sections, notes)
    return _shipped(request, path)._replace(notes=notes)


def _shipped(request: Request, path: str) -> Stands:
    """What a shipped table of this machine says, where the lookup answers from it."""
    from advisor.gather import files

    site, first = _site(request), request.problems[0]
    ids = (first.kernel, request.machine.hardware_id, request.machine.limits_id)
    name = os.path.basename(path)
    for other in () if site is None else files(site, None, None):
        if os.path.basename(other) == name and os.path.abspath(other) != os.path.abspath(path):
            try:
                table = store.load_table(other)
            except AdvisorError:
                continue
            own = _own(table, first) if store.ids_of(table) == ids else None
            if own is not None:
                return Stands(own, other)
    return Stands(None, path)


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
    found = () if own is None else store.measured_of(own, own)
    return own._replace(sections=found) if own is not None and found else None


def keep(table: Table | None, problems: Sequence[Problem]) -> tuple[tuple[Problem, Choice], ...]:
    """What the table says at the problems of a request: these choices race."""
    known = picks(table, problems[0])
    return tuple((problem, known[problem.n]) for problem in problems if problem.n in known)


def remembered(before: Past, table: Table | None, request: Request) -> Past:
    """What was known before a run and may be learned from beside it: at the n that the table has, nothing else.

    Of the log's final races there only those count that timed what the table says: what did not land once, because the
    table's choice was in no race, shall not come in later. Where none is left that ran to its end undisturbed, the
    table's own figures count beside them, unless they are stale.

    Args:
        before: what the log knows.
        table: what stands; None: nothing, and all of the log counts.
        request: what is going to be run.
    """
    first = request.problems[0]
    own = _own(table, first)
    if own is None:
        return before
    old = incumbent(own, request)
    told = tuple(v for v in before.verdicts if v.purpose != "final" or _timed(v, old, request.options.objective))
    stays = {n: choice for n, choice in old.picks.items() if n not in old.lost}
    raced = {v.problem.n for v in told if v.purpose == "final" and _is_sure(v, stays.get(v.problem.n))}
    found = recall(own, first, {n: c for n, c in stays.items() if n not in raced}, _fresh(own, request))
    there = {v.problem.n for v in told}
    trials = tuple(trial for trial in before.trials if trial.problem.n in there)
    return before._replace(verdicts=(*found.verdicts, *told), trials=trials, recalled=found.points)


def untouched(table: Table | None, outcome: Outcome, request: Request) -> tuple[tuple[int, Choice], ...]:
    """What the table says at the n that a run did not race, as far as that holds: it is settled there."""
    old = incumbent(table, request)
    raced = {v.problem.n for v in outcome.verdicts if v.purpose == "final"} | old.lost
    same = old.objective == request.options.objective
    return tuple((n, choice) for n, choice in sorted(old.picks.items()) if same and n not in raced)


def _timed(verdict: Verdict, old: Incumbent, objective: str) -> bool:
    """Whether a final race is about an n of the table, and timed what the table says there, where that counts."""
    n = verdict.problem.n
    if n not in old.picks or n in old.lost or old.objective != objective:
        return n in old.picks
    return any(s.summary and same_program(s.choice) == old.picks[n] for s in verdict.standings)


def _is_sure(verdict: Verdict, kept: Choice | None) -> bool:
    """Whether a race has an undisturbed time of what the table says, over rounds enough."""
    own = [s for s in verdict.standings if same_program(s.choice) == kept]
    return any(s.summary and weight(s.summary.samples, s.contended) == QUIET for s in own)


def _fresh(own: Table, request: Request) -> tuple[Row, ...]:
    """The rows of a table that hold now: what they depend on is as it was, and their build is at hand."""
    at_hand, changed = _at_hand(request), _changes(own, request)
    found = (row for section in own.sections for row in _all_rows(section))
    builds = ((row, (row.choice.build.variant, row.choice.build.source_hash)) for row in found)
    return tuple(row for row, build in builds if build in at_hand and not changed.get(id(row)))


def _all_rows(section: Section) -> tuple[Row, ...]:
    return (*section.rows, *(row for other in section.alternatives for row in other.rows))


# --- deciding ---


def incumbent(table: Table | None, request: Request) -> Incumbent:
    """What stands in the table for a request's shape, and what speaks against it."""
    own = _own(table, request.problems[0])
    if own is None:
        return Incumbent({})
    found = picks(own, request.problems[0])
    at_hand, changes = _at_hand(request), _changes(own, request)
    builds = {n: (choice.build.variant, choice.build.source_hash) for n, choice in found.items()}
    gone = {n: f"{name} of that source" for n, (name, source) in builds.items() if (name, source) not in at_hand}
    rows = {n: _row(best_section(own, n), n) for n in found}
    stale = {n: changes[id(row)] for n, row in rows.items() if row is not None and changes.get(id(row))}
    words = tuple(dict.fromkeys(word for told in stale.values() for word in told))
    lost = frozenset({*gone, *stale})
    return Incumbent(found, words, tuple(dict.fromkeys(gone.values())), own.sections[0].objective, lost)


def _row(section: Section, n: int) -> Row | None:
    return next((row for row in section.rows if row.low <= n <= row.high), None)


def _at_hand(request: Request) -> set[tuple[str, str]]:
    return {(variant.name, variant.source_hash) for variant in request.variants}


def _changes(own: Table, request: Request) -> dict[int, tuple[str, ...]]:
    """By the id of each row of a shape: what it depends on and is not as it was, in words."""
    from advisor.ranges import changed_fields

    site = _site(request)
    if site is None:
        return {}
    document = {**codec.to_json(own._replace(sections=())), "sections": []}
    found = {}
    for section in own.sections:
        told = codec.to_json(section)
        found.update({id(row): changed_fields(site, document, told, codec.to_json(row)) for row in _all_rows(section)})
    return found


def _site(request: Request) -> Any:
    """The machine as it is now, from what the probe has just kept; None where that cannot be read."""
    from advisor.probing import folder_of
    from advisor.site import describe_file

    try:
        return describe_file(os.path.join(folder_of(request.machine), "machine.json"))
    except AdvisorError:
        return None


def judge(
    old: Incumbent, outcome: Outcome, candidate: Table, request: Request, bar: Bar, checks: Sequence[Measurement] = ()
) -> Decision:
    """At which n what a run found takes the place of what stands.

    Args:
        old: what stands in the table.
        outcome: of the run, without what failed in a fresh process.
        candidate: the table learned of it: what would be said at the n that were raced.
        request: what was run.
        bar: the least gain, and the workload.
        checks: of winners in a fresh process, now and earlier.
    """
    from advisor.policy.workload import outside, spread

    objective = request.options.objective
    finals = [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]
    known, raced = picks(candidate, request.problems[0]), sorted(v.problem.n for v in finals)
    load = bar.workload.weights(request.spec.name) if bar.workload else {}
    weights = spread(load, raced)[0] if load and raced else {}
    found = [_found(v, known[v.problem.n], outcome, checks) for v in finals if v.problem.n in known]
    compared = landing.compare(found, old, objective, weights if any(weights.values()) else {})
    decision = landing.decide(old, compared, objective, sorted(set(raced) - set(old.picks)), bar.least)
    failed = tuple((v.problem.n, s.choice) for v in finals for s in v.standings if s.outcome == "failed")
    return decision._replace(failed=failed, outside=outside(load, raced))


def _found(verdict: Verdict, candidate: Choice, outcome: Outcome, checks: Sequence[Measurement]) -> landing.Found:
    figures = figures_of(verdict, outcome.stolen, outcome.energy)
    figures = [one._replace(choice=same_program(one.choice)) for one in figures]
    standings = tuple(s._replace(choice=same_program(s.choice)) for s in verdict.standings)
    race = verdict._replace(winner=same_program(verdict.winner), standings=standings)
    passed = (m for m in checks if m.status == "ok" and m.problem.n >= verdict.problem.n)
    return landing.Found(race, candidate, figures, any(same_program(m.choice) == candidate for m in passed))


def land(
    table: Table | None,
    outcome: Outcome,
    candidate: Table,
    request: Request,
    bar: Bar,
    checks: Sequence[Measurement] = (),
) -> Landed:
    """What a run comes to beside the table that stands; arguments as for `judge`, `table`: what stands.

    Returns:
        The decision; what is settled at every n; and the outcome without the races at n where the table's choice stays
        and has no time, so that the figures of before stay there.
    """
    old = incumbent(table, request)
    decision = judge(old, outcome, candidate, request, bar, checks)
    kept = landing.settled(old, picks(candidate, request.problems[0]), decision, request.options.objective)
    stays = {n: choice for n, choice in kept.items() if n not in decision.taken}
    verdicts = tuple(v for v in outcome.verdicts if v.purpose != "final" or _says(v, stays.get(v.problem.n)))
    return Landed(outcome._replace(verdicts=verdicts), decision, tuple(sorted(kept.items(), key=lambda one: one[0])))


def _says(verdict: Verdict, kept: Choice | None) -> bool:
    """Whether a final race has a time of what is settled there."""
    return kept is None or any(s.summary and same_program(s.choice) == kept for s in verdict.standings)


# --- keeping ---


def record(decision: Decision, path: str, request: Request, table: Table | None) -> tuple[str, ...]:
    """Keep the table in the history, and the decision in the ledger. Returns what the user should know.

    A disk that takes no history still has the table.

    Args:
        table: what stands afterwards.
    """
    now = datetime.datetime.now(datetime.UTC)
    line = ledger.entry(decision, request.problems[0], request.session, table.table_id if table else "", now)
    why = "" if decision.verdict in (landing.FIRST, landing.SAME) else f"landing: {decision.why}"
    told = tuple(filter(None, (why, decision.outside)))
    try:
        history.keep(path, now)
        ledger.append(os.path.dirname(os.path.abspath(path)), line)
    except (OSError, AdvisorError) as error:
        return *told, f"the table is saved, its history and ledger are not: {error}"
    return told
