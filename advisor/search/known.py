"""What a log already knows of the run that is asked: trials and verdicts that need not be measured again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from advisor.codec import from_json, to_json
from advisor.errors import AdvisorError
from advisor.records import Choice, Measurement, Problem, Verdict
from advisor.search.log import of_sessions, read
from advisor.search.request import PROTOCOL, Request, space_hash

VerdictKey = tuple[str, Problem, frozenset[Choice]]
"""Purpose, problem, who raced: the same heat need not be run again."""

REST, STOLEN = "rest", "stolen"
"""Phases of trials that are no first looks of a search: of the exhaustive pass, which a search must not have known, and
beside a busy neighbour, which are another regime."""


class Known(NamedTuple):
    """Trials a problem in the order measured, each phase apart; verdicts a heat; notes on the log."""

    trials: dict[Problem, tuple[Measurement, ...]]
    rest: dict[Problem, tuple[Measurement, ...]]
    stolen: dict[Problem, tuple[Measurement, ...]]
    verdicts: dict[VerdictKey, Verdict]
    notes: tuple[str, ...] = ()


NOTHING = Known({}, {}, {}, {})


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
        "protocol": PROTOCOL,
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
    looks, rest, stolen = _phases(mine)
    verdicts = {verdict_key(v): v for v in _parsed(mine, "verdict", Verdict)}
    return Known(_by_problem(looks), _by_problem(rest), _by_problem(stolen), verdicts, found.notes)


def _phases(records: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], ...]:
    """The records of searches, of exhaustive passes, and of measurements beside a neighbour."""
    sorted_out: dict[str, list[dict[str, Any]]] = {"": [], REST: [], STOLEN: []}
    for record in records:
        phase = record.get("phase")
        sorted_out[phase if phase in (REST, STOLEN) else ""].append(record)
    return tuple(sorted_out.values())


class Past(NamedTuple):
    """Races, first looks, and measurements beside a neighbour of earlier sessions, in order; notes on the log."""

    verdicts: tuple[Verdict, ...] = ()
    trials: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    stolen: tuple[Measurement, ...] = ()


def past(path: str, request: Request) -> Past:
    """What earlier sessions measured that a table of this shape may still say, at whatever n and in whatever space.

    Only what holds now: same machine, limits, environment and protocol, and of variants that are at hand unchanged.
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
        return problem._replace(n=0) == shape and builds <= at_hand

    verdicts = [v for v in _parsed(mine, "verdict", Verdict) if counts(v.problem, *(s.choice for s in v.standings))]
    raced = {verdict.problem for verdict in verdicts}
    looks, rest, beside = _phases(mine)

    def trials(records: list[dict[str, Any]]) -> tuple[Measurement, ...]:
        found = _parsed(records, "trial", Measurement)
        return tuple(t for t in found if t.problem in raced and counts(t.problem, t.choice))

    return Past(tuple(verdicts), trials([*looks, *rest]), found.notes, trials(beside))


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
