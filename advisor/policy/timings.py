"""Times under every setting that was measured, as `single` compares them: from tables, and from the log beside them.

A table has the times of the choices that it names; the log has those of all that were looked at. Where both have a
raced time of one setting at one n, the log's last race counts: the least of both would be the luckier one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import dumps
from typing import Any, NamedTuple

from advisor.codec import from_json
from advisor.errors import AdvisorError
from advisor.policy.single import Setting, Timing
from advisor.records import Measurement
from advisor.search import protocol
from advisor.search.known import AGAIN, FAILED, NO_LOOKS
from advisor.search.log import of_sessions, read
from advisor.search.run import value_of
from advisor.search.settled import CONTENDED, THIN, weight

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
                found += [_of_point(label, setting, point) for point in points]
    return found


def _of_point(label: str, setting: Setting, point: Mapping[str, Any]) -> Timing:
    contended = bool(point.get("contended"))
    return Timing(label, point["n"], setting, point["summary"]["p25_ns"], point["raced"], contended)


def latest(tabled: Sequence[Timing], logged: Sequence[Timing]) -> list[Timing]:
    """The timings of tables and of the logs beside them; of the raced ones at a place only those of the last race.

    One that was not disturbed stands before one that was, whatever came last.

    Args:
        tabled: of sections.
        logged: of logs.
    """
    both = [*((False, one) for one in tabled), *((True, one) for one in logged)]
    best: dict[tuple[str, int, Setting], tuple[bool, bool]] = {}
    for is_logged, one in both:
        if one.raced:
            best[_place(one)] = max(best.get(_place(one), (False, False)), (not one.contended, is_logged))
    return [one for is_logged, one in both if not one.raced or best[_place(one)] == (not one.contended, is_logged)]


def _place(one: Timing) -> tuple[str, int, Setting]:
    return one.kernel, one.n, one.setting


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

    Of several races of a problem the last counts that has a setting to its end, not the luckiest: a final race before
    those at borders, an undisturbed one before a disturbed one. Of several looks at one choice the last counts, too.

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
    looks, races = dict[str, Timing](), dict[tuple[str, int, Setting], _Time]()
    for one in _times(mine):
        label, setting = labels.get(_key(one.problem)), setting_of(one.choice)
        name = _name({"problem": one.problem, "choice": one.choice})
        if label and setting and name not in failed and is_current(one.problem["kernel"])(one.choice["build"]):
            place = label, one.problem["n"], setting
            if one.sure == THIN:
                looks[name] = Timing(*place, one.ns, raced=False)
            else:
                races[place] = max(races.get(place, one), one, key=lambda time: (time.sure, time.race, -time.ns))
    raced = (Timing(*place, one.ns, raced=True, contended=one.sure == CONTENDED) for place, one in races.items())
    return [*looks.values(), *raced]


class _Time(NamedTuple):
    """A time in ns with its problem and choice, as documents. `sure`: how well it is known, see `settled.weight`;
    `race`: in which race it was taken, final ones and later ones higher."""

    problem: dict[str, Any]
    choice: dict[str, Any]
    ns: float
    sure: int = THIN
    race: tuple[bool, int] = (False, 0)


_SAME = ("hardware_id", "limits_id", "environment")


def _is_failure(record: Mapping[str, Any]) -> bool:
    """Whether a winner crashed, hung or was wrong in a fresh process."""
    return record.get("phase") == AGAIN and record.get("measurement", {}).get("status") in FAILED


def _name(measured: Mapping[str, Any]) -> str:
    return dumps({name: measured.get(name) for name in ("problem", "choice")}, sort_keys=True)


def _key(problem: Mapping[str, Any]) -> Key:
    return problem["kernel"], problem["dtype"], problem["regime"], tuple(sorted(problem["shape"].items()))


def _times(records: Iterable[dict[str, Any]]) -> Iterator[_Time]:
    """The time of every look and every standing; damaged records are passed over."""
    for at, record in enumerate(records):
        try:
            if record["kind"] == "trial" and record.get("phase") not in NO_LOOKS:
                ns = value_of(from_json(Measurement, record["measurement"]))
                if ns:
                    yield _Time(record["measurement"]["problem"], record["measurement"]["choice"], ns)
            elif record["kind"] == "verdict":
                verdict, race = record["verdict"], (record["verdict"]["purpose"] == "final", at)
                for one in verdict["standings"]:
                    if one["summary"] and one["outcome"] != "failed":
                        sure = weight(one["summary"]["samples"], one.get("contended", False))
                        yield _Time(verdict["problem"], one["choice"], one["summary"]["p25_ns"], sure, race)
        except (AdvisorError, KeyError, TypeError):
            continue
