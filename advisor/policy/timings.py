"""Times under every setting that was measured, as `single` compares them: from tables, and from the log beside them.

A table has the times of the choices that it names; the log has those of all that were looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from json import dumps
from typing import Any

from advisor.codec import from_json
from advisor.errors import AdvisorError
from advisor.policy.single import Setting, Timing
from advisor.records import Measurement
from advisor.search import protocol
from advisor.search.known import AGAIN, FAILED, NO_LOOKS
from advisor.search.log import of_sessions, read
from advisor.search.race import LEAST_ROUNDS
from advisor.search.run import value_of

Key = tuple[str, str, str, tuple[tuple[str, Any], ...]]
"""Kernel, dtype, regime and shape (sorted) of a problem."""

Labels = Mapping[Key, str]

Current = Callable[[Mapping[str, Any]], bool]

MOST_BYTES = 64 << 20
"""A larger log takes a while to read; its tables then stand for it."""


def of_sections(label: str, sections: Iterable[Mapping[str, Any]], is_current: Current) -> list[Timing]:
    """All times that sections of one problem have, as a table's file has them.

    Args:
        label: the name of the problem in the timings.
        sections: rows, rows for other objectives and the default choice count; a device's have no team and none.
        is_current: whether a build's variant is at hand unchanged.
    """
    found = []
    for section in sections:
        rows = [*section["rows"], *(row for other in section.get("alternatives") or () for row in other["rows"])]
        pairs = [(row["choice"], row.get("points") or ()) for row in rows]
        for choice, points in [*pairs, (section["default"], section.get("default_points") or ())]:
            setting = setting_of(choice)
            if setting is not None and is_current(choice["build"]):
                found += [Timing(label, p["n"], setting, p["summary"]["p25_ns"], p["raced"]) for p in points]
    return found


def setting_of(choice: Mapping[str, Any]) -> Setting | None:
    """The setting of a choice, as a file has it; None of a device's."""
    team, process = choice["team"], choice["process"]
    if team is None or process is None:
        return None
    memory = process.get("memory_policy") or "default"
    if team["threads"] == 1:
        return Setting("default", None, memory, 1, team["placement"])
    return Setting(process["wait_policy"], process["spin"], memory, team["threads"], team["placement"])


def of_log(path: str, labels: Labels, is_current: Callable[[str], Current]) -> list[Timing]:
    """All times of the last run's conditions (machine, limits, environment, protocol) that a log has.

    Args:
        path: of the log; nothing where there is none, or it cannot be read.
        labels: problem apart from its n -> the name it has in the timings; others are passed over.
        is_current: of a kernel, whether a build's variant is at hand unchanged.
    """
    try:
        records = read(path).records if os.path.getsize(path) <= MOST_BYTES else ()
    except (OSError, AdvisorError):
        return []
    sessions = [r for r in records if r["kind"] == "session" and r.get("protocol") == protocol.VERSION]
    last = [sessions[-1].get(key) for key in _SAME] if sessions else []
    names = [r["session"] for r in sessions if [r.get(key) for key in _SAME] == last]
    mine = of_sessions(records, names)
    failed = {_name(r["measurement"]) for r in mine if _is_failure(r)}
    looks, races = list[Timing](), dict[str, Timing]()
    for problem, choice, ns, raced in _times(mine):
        label, setting = labels.get(_key(problem)), setting_of(choice)
        name = _name({"problem": problem, "choice": choice})
        if label and setting and name not in failed and is_current(problem["kernel"])(choice["build"]):
            one = Timing(label, problem["n"], setting, ns, raced)
            if raced:
                races[name] = one  # of several races of a choice the last counts, not the luckiest
            else:
                looks.append(one)
    return [*looks, *races.values()]


_SAME = ("hardware_id", "limits_id", "environment")


def _is_failure(record: Mapping[str, Any]) -> bool:
    """Whether a winner crashed, hung or was wrong in a fresh process."""
    return record.get("phase") == AGAIN and record.get("measurement", {}).get("status") in FAILED


def _name(measured: Mapping[str, Any]) -> str:
    return dumps({name: measured.get(name) for name in ("problem", "choice")}, sort_keys=True)


def _key(problem: Mapping[str, Any]) -> Key:
    return problem["kernel"], problem["dtype"], problem["regime"], tuple(sorted(problem["shape"].items()))


def _times(records: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any], float, bool]]:
    """(problem, choice, ns, raced) of every look and every standing, as documents; damaged records are passed over.

    A standing with fewer samples than a ranking may rest on is not raced.
    """
    for record in records:
        try:
            if record["kind"] == "trial" and record.get("phase") not in NO_LOOKS:
                ns = value_of(from_json(Measurement, record["measurement"]))
                if ns:
                    yield record["measurement"]["problem"], record["measurement"]["choice"], ns, False
            elif record["kind"] == "verdict":
                for one in record["verdict"]["standings"]:
                    if one["summary"] and one["outcome"] != "failed":
                        settled = one["summary"]["samples"] >= LEAST_ROUNDS
                        yield record["verdict"]["problem"], one["choice"], one["summary"]["p25_ns"], settled
        except (AdvisorError, KeyError, TypeError):
            continue
