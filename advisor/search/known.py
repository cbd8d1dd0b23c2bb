"""What a log already knows of the run that is asked: trials and verdicts that need not be measured again."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from advisor.codec import from_json, to_json
from advisor.errors import AdvisorError
from advisor.records import Choice, Measurement, Point, Problem, Standing, Verdict
from advisor.search import protocol
from advisor.search.log import of_sessions, read
from advisor.search.overturn import overturned
from advisor.search.request import Request, space_hash

VerdictKey = tuple[str, Problem, frozenset[Choice]]
"""Purpose, problem, who raced: the same heat need not be run again."""

REST, NEARBY, STOLEN, AGAIN, DRIFT, ENERGY = "rest", "nearby", "stolen", "again", "drift", "energy"
"""Phases of trials that a search must not have known: first looks of the exhaustive pass, and those beside the best one
of the search after its model ended. And of trials that are no first looks:
beside a busy neighbour, which are another regime; of a winner in a fresh process, which have no time; of the reference
that shows drift; of a finalist with a counter of energy around it."""

NO_LOOKS = (STOLEN, AGAIN, DRIFT, ENERGY)

PHASES = (REST, NEARBY, *NO_LOOKS)

FAILED = ("wrong", "crashed", "timeout")
"""How a winner's check in a fresh process ends that speaks against it. Skipped says that there was no room just now."""

Failed = Collection[tuple[Problem, Choice]]
"""Where a choice failed in a fresh process; the choice as `same_program` gives it."""


Incumbents = dict[Problem, tuple[Choice, ...]]
"""What earlier runs on this machine picked, a problem."""


class Known(NamedTuple):
    """Trials a problem in the order measured, each phase apart; verdicts a heat; notes on the log.

    `incumbents`: what the interrupted run that is gone on with had from runs before it; None where none is in the log.
    """

    trials: dict[Problem, tuple[Measurement, ...]]
    rest: dict[Problem, tuple[Measurement, ...]]
    nearby: dict[Problem, tuple[Measurement, ...]]
    stolen: dict[Problem, tuple[Measurement, ...]]
    energy: dict[Problem, tuple[Measurement, ...]]
    verdicts: dict[VerdictKey, Verdict]
    notes: tuple[str, ...] = ()
    incumbents: Incumbents | None = None


NOTHING = Known({}, {}, {}, {}, {}, {})


def verdict_key(verdict: Verdict) -> VerdictKey:
    """The key under which the same heat finds its verdict again."""
    return verdict.purpose, verdict.problem, frozenset(standing.choice for standing in verdict.standings)


def same_run(session: dict[str, Any], request: Request) -> bool:
    """Whether a session's measurements hold for a request: same machine, limits, environment, space, protocol."""
    wanted = {**_conditions(request), "space_hash": space_hash(request)}
    return _has(session, wanted)


def _has(session: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(session.get(key) == value for key, value in wanted.items())


def _conditions(request: Request) -> dict[str, Any]:
    """What a session must have in common with a request for its measurements to hold at all."""
    return {
        "hardware_id": request.machine.hardware_id,
        "limits_id": request.machine.limits_id,
        "environment": to_json(dict(request.environment)),
        "protocol": protocol.VERSION,
    }


def known(path: str, request: Request) -> Known:
    """What the log at `path` knows; nothing when there is no such file.

    Raises:
        SchemaError: the log was written by a newer major version.
    """
    if not os.path.exists(path):
        return NOTHING
    found = read(path)
    sessions = [r.get("session") for r in found.records if r["kind"] == "session" and same_run(r, request)]
    mine = of_sessions(found.records, [session for session in sessions if isinstance(session, str)])
    of = _phases(mine)
    looks, rest, nearby, stolen, energy = (_by_problem(of[phase]) for phase in ("", REST, NEARBY, STOLEN, ENERGY))
    verdicts = {verdict_key(v): v for v in _parsed(mine, "verdict", Verdict)}
    listed = [r["incumbents"] for r in mine if r["kind"] == "session" and "incumbents" in r]
    incumbents = _incumbents(listed[-1]) if listed else None
    return Known(looks, rest, nearby, stolen, energy, verdicts, found.notes, incumbents)


def _incumbents(listed: Any) -> Incumbents | None:
    """What a session's record says; None where it is damaged."""
    try:
        found = [(from_json(Problem, one["problem"]), from_json(Choice, one["choice"])) for one in listed]
        return {problem: tuple(c for p, c in found if p == problem) for problem, _ in found}
    except (AdvisorError, TypeError, KeyError):
        return None


def recorded(incumbents: Incumbents) -> list[dict[str, Any]]:
    """The incumbents as a session's record has them."""
    return [{"problem": to_json(p), "choice": to_json(c)} for p, choices in incumbents.items() for c in choices]


def _phases(records: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The records by phase; those of searches under the empty text."""
    sorted_out: dict[str, list[dict[str, Any]]] = {phase: [] for phase in ("", *PHASES)}
    for record in records:
        phase = record.get("phase")
        sorted_out[phase if phase in PHASES else ""].append(record)
    return sorted_out


def same_program(choice: Choice) -> Choice:
    """The choice; one of a single thread without its wait policy, which means nothing to it: one check stands for all.

    Compiler, runtime and memory policy stay.
    """
    alone = choice.team is not None and choice.team.threads == 1
    if not alone or choice.process is None:
        return choice
    return choice._replace(process=choice.process._replace(wait_policy="default", spin=None))


def _key(trial: Measurement) -> tuple[Problem, Choice]:
    return trial.problem, same_program(trial.choice)


def without(verdicts: Iterable[Verdict], failed: Failed) -> tuple[Verdict, ...]:
    """The races with the choices that failed later as failed; one in which nothing else was timed is left out.

    The best of the others takes the place of a winner that failed.
    """
    return tuple(kept for verdict in verdicts if (kept := _kept(verdict, failed)) is not None)


def _kept(verdict: Verdict, failed: Failed) -> Verdict | None:
    gone = {s.choice for s in verdict.standings if (verdict.problem, same_program(s.choice)) in failed}
    if not gone:
        return verdict
    left = tuple(Standing(s.choice, "failed", None, None, None) if s.choice in gone else s for s in verdict.standings)
    if verdict.winner not in gone:
        return verdict._replace(standings=left)
    times = {s.choice: s.summary.p25_ns for s in left if s.summary}
    if not times:
        return None
    best = min(times, key=times.__getitem__)
    return verdict._replace(winner=best, standings=tuple(_beside(s, best, times) for s in left))


def _beside(standing: Standing, best: Choice, times: dict[Choice, float]) -> Standing:
    """A standing beside another winner. Samples are not in the log's verdicts, so there are no intervals."""
    if standing.choice not in times:
        return standing
    outcome = "winner" if standing.choice == best else standing.outcome
    return standing._replace(outcome=outcome, ratio=times[standing.choice] / times[best], ratio_ci95=None, regret=None)


class Past(NamedTuple):
    """Races, first looks, measurements beside a neighbour and with a counter of energy of earlier sessions, in order;
    notes on the log; checks in a fresh process; figures that the table has, where the log has none.
    """

    verdicts: tuple[Verdict, ...] = ()
    trials: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    stolen: tuple[Measurement, ...] = ()
    energy: tuple[Measurement, ...] = ()
    checks: tuple[Measurement, ...] = ()
    recalled: tuple[tuple[Problem, Choice, Point], ...] = ()


def past(path: str, request: Request, every_shape: bool = False) -> Past:
    """What earlier sessions measured that a table of this shape may still say, at whatever n and in whatever space.

    Only what holds now: same machine, limits, environment and protocol, and of variants that are at hand unchanged.

    Args:
        path: of the log.
        request: names kernel and shape.
        every_shape: also what was measured at other shapes and dtypes of the kernel.
    """
    if not os.path.exists(path):
        return Past()
    try:
        found = read(path)
    except AdvisorError as error:
        return Past(notes=(f"earlier runs do not count: {error}",))
    wanted = _conditions(request)
    sessions = [r.get("session") for r in found.records if r["kind"] == "session" and _has(r, wanted)]
    mine = of_sessions(found.records, [session for session in sessions if isinstance(session, str)])
    at_hand = {(variant.name, variant.source_hash) for variant in request.variants}
    shape = request.problems[0]._replace(n=0)

    def counts(problem: Problem, *choices: Choice) -> bool:
        builds = {(choice.build.variant, choice.build.source_hash) for choice in choices}
        ours = problem.kernel == shape.kernel if every_shape else problem._replace(n=0) == shape
        return ours and builds <= at_hand

    verdicts = [v for v in _parsed(mine, "verdict", Verdict) if counts(v.problem, *(s.choice for s in v.standings))]
    of = _phases(mine)
    checks = {_key(m): m for m in _parsed(of[AGAIN], "trial", Measurement)}
    failed = {key for key, check in checks.items() if check.status in FAILED}
    verdicts = list(overturned(without(verdicts, failed)))
    raced = {verdict.problem for verdict in verdicts}

    def trials(records: list[dict[str, Any]]) -> tuple[Measurement, ...]:
        found = _parsed(records, "trial", Measurement)
        return tuple(t for t in found if t.problem in raced and counts(t.problem, t.choice) and _key(t) not in failed)

    looks = [record for record in mine if record.get("phase") not in NO_LOOKS]  # in the order taken: the last counts
    same = tuple(check for check in checks.values() if counts(check.problem, check.choice))
    return Past(tuple(verdicts), trials(looks), found.notes, trials(of[STOLEN]), trials(of[ENERGY]), same)


def _parsed(records: Iterable[dict[str, Any]], kind: str, cls: Any) -> list[Any]:
    """Records of one kind as `cls`; one that does not parse is worth nothing and is measured again."""
    name, parsed = ("measurement" if kind == "trial" else kind), []
    for record in records:
        if record["kind"] == kind:
            try:
                found = from_json(cls, record.get(name))
                hash(found)  # a damaged one may hold what no key can be made of
                parsed.append(found)
            except (AdvisorError, TypeError):
                continue
    return parsed


def _by_problem(records: Iterable[dict[str, Any]]) -> dict[Problem, tuple[Measurement, ...]]:
    """First measurement of each choice, a problem; later ones repeat it."""
    found: dict[Problem, dict[Choice, Measurement]] = {}
    for measurement in _parsed(records, "trial", Measurement):
        found.setdefault(measurement.problem, {}).setdefault(measurement.choice, measurement)
    return {problem: tuple(choices.values()) for problem, choices in found.items()}
