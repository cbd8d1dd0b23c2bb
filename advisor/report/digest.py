"""From a log and tables to what is drawn: times by threads or variant, the chosen path, regret. Pure functions.

Records of a log are read as plain data; one that lacks a field is left out, as it could be written by a newer advisor.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from advisor import codec, doubts
from advisor.errors import AdvisorError
from advisor.records import Choice, Pairs, Point, Row, Section, Table, pairs
from advisor.search.samples import smooth_p25
from advisor.tuning_result import best_section

LOOKS = ("search", "nearby", "rest")
"""Phases of a log whose trials are first looks: nothing stole time from them on purpose."""

ENOUGH = 9
"""Rounds from which a race's figures count. Source: docs/search.md."""

MOST = 1 << 53
"""The largest n and team that is drawn: above it a number of a page is no longer whole."""

ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AdvisorError)
"""What a record raises that holds something else than this program wrote: it is passed over."""

Json = Mapping[str, Any]


class Key(NamedTuple):
    """What one group of figures is about: everything of a problem but n."""

    kernel: str
    dtype: str
    shape: Pairs
    regime: str


class Timed(NamedTuple):
    """The time of one choice at one n; `raced`: from a race, else from a first look."""

    n: int
    choice: Choice
    ns: float
    raced: bool


class Dot(NamedTuple):
    """The best time at one n with so many threads, or on a GPU with one variant (`at`)."""

    n: int
    at: int | str
    ns: float
    choice: Choice
    raced: bool


class Step(NamedTuple):
    """The table's choice at one n that it speaks of.

    `ns`: its time, measured or as others published it. `point`: all figures of a measurement. `regret`: from the latest
    race there. `basis`: EXACT where it was measured here. `gain`: as `advisor recommend` says it. None: no such
    figure.
    """

    n: int
    choice: Choice
    ns: float | None
    point: Point | None
    default_ns: float | None
    regret: float | None
    basis: str = "EXACT"
    gain: float | None = None

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against its figures."""
        return () if self.point is None else doubts.doubts(self.point.raced, self.point.contended)


class HeldOutAt(NamedTuple):
    """Regret at one n that was not tuned, of one process part."""

    n: int
    regret: float


def keys(tables: Iterable[Table]) -> tuple[Key, ...]:
    """The problems that tables answer, in their order."""
    found = [Key(table.kernel, s.dtype, s.shape, s.regime) for table in tables for s in table.sections]
    return tuple(dict.fromkeys(found))


# --- the log ---


def timed(records: Iterable[Json]) -> dict[Key, list[Timed]]:
    """Every choice that was timed on a quiet machine: the latest race of each, else the latest look."""
    best: dict[Key, dict[tuple[int, Choice], Timed]] = {}
    for record in records:
        for key, one in _times_of(record):
            known = best.setdefault(key, {})
            name = one.n, one.choice
            if one.raced or name not in known or not known[name].raced:
                known[name] = one
    return {key: list(known.values()) for key, known in best.items()}


def _times_of(record: Json) -> Iterator[tuple[Key, Timed]]:
    with contextlib.suppress(*ODD):
        if record["kind"] == "trial" and record["phase"] in LOOKS:
            done = record["measurement"]
            if done["status"] == "ok" and done["samples_ns"]:
                ns = smooth_p25([positive(one) for one in done["samples_ns"]])
                yield _key(done["problem"]), _timed(done, done, ns, raced=False)
        elif record["kind"] == "verdict":
            verdict = record["verdict"]
            raced = verdict["rounds"] >= ENOUGH
            for one in verdict["standings"]:
                with contextlib.suppress(*ODD):  # the other standings tell as much as before
                    if one["summary"]:
                        yield _key(verdict["problem"]), _timed(verdict, one, one["summary"]["p25_ns"], raced)


def _timed(of: Json, done: Json, ns: object, raced: bool) -> Timed:
    """One time of a record, checked: what is drawn is finite. Raises one of ODD."""
    return Timed(*_place(of, done), positive(ns), raced)


def positive(value: object) -> float:
    """A number of a log that can be drawn on a logarithmic axis. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(value)
    return float(value)


def size(value: object) -> int:
    """A whole number of a log as large as sizes and teams are. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ValueError(value)
    return value


def _place(of: Json, done: Json) -> tuple[int, Choice]:
    """Its n, and the choice as a record."""
    choice = _choice(json.dumps(done["choice"], sort_keys=True))
    if choice.team is not None:
        size(choice.team.threads)
    return size(of["problem"]["n"]), choice


@functools.lru_cache(maxsize=1 << 14)
def _choice(text: str) -> Choice:
    """A choice that a log holds over and over.

    Raises:
        BadInput: it is none.
    """
    found: Choice = codec.from_json(Choice, json.loads(text), "a choice of the log")
    return found


def _key(problem: Json) -> Key:
    key = Key(problem["kernel"], problem["dtype"], pairs(problem["shape"]), problem.get("regime", "warm"))
    hash(key)  # raises TypeError for a list or a dict in the place of a word
    return key


def dots(found: Iterable[Timed]) -> tuple[Dot, ...]:
    """The fastest choice at each n with each number of threads, or of each variant on a GPU; in the order of both."""
    best: dict[tuple[int, int | str], Dot] = {}
    for one in found:
        at = one.choice.build.variant if one.choice.team is None else one.choice.team.threads
        known = best.get((one.n, at))
        if known is None or one.ns < known.ns:
            best[one.n, at] = Dot(one.n, at, one.ns, one.choice, one.raced)
    return tuple(best[name] for name in sorted(best, key=lambda name: (name[0], str(name[1]).zfill(9))))


# --- the table ---


def path(table: Table, key: Key, records: Sequence[Json]) -> tuple[Step, ...]:
    """What `advisor recommend` says at each tuned n of a problem."""
    sections = sections_of(table, key)
    regrets = _regrets(key, records)
    own = table._replace(sections=sections)
    found = []
    for n in sorted({n for section in sections for n in section.tuned_n}):
        section = best_section(own, n)
        row = next((row for row in section.rows if row.low <= n <= row.high), None)
        if row is not None:
            point = next((point for point in row.points if point.n == n), None)
            ns = _published_ns(row, n) if point is None else point.summary.p25_ns
            basis = str(dict(section.extra).get("basis") or "EXACT")
            regret = regrets.get((n, row.choice))
            default = next((point for point in section.default_points if point.n == n), None)
            default_ns = None if default is None else default.summary.p25_ns
            contended = any(one is not None and one.contended for one in (point, default))
            gain = doubts.gain(ns, default_ns, contended)
            found.append(Step(n, row.choice, ns, point, default_ns, regret, basis, gain))
    return tuple(found)


def _published_ns(row: Row, n: int) -> float | None:
    """The time that others printed for n."""
    printed = dict(row.extra).get("published") or ()
    for one in printed:
        with contextlib.suppress(*ODD):
            if one["n"] == n:
                return positive(one["time_ns"])
    return None


def sections_of(table: Table, key: Key) -> tuple[Section, ...]:
    """Sections of one problem, one a process part."""
    return tuple(s for s in table.sections if (table.kernel, s.dtype, s.shape, s.regime) == key)


def _regrets(key: Key, records: Iterable[Json]) -> dict[tuple[int, Choice], float]:
    """(n, choice) -> regret of the choice in the latest final race there."""
    found: dict[tuple[int, Choice], float] = {}
    for record in records:
        with contextlib.suppress(*ODD):
            verdict = record["verdict"] if record["kind"] == "verdict" else None
            if verdict is not None and verdict["purpose"] == "final" and _key(verdict["problem"]) == key:
                for one in verdict["standings"]:
                    with contextlib.suppress(*ODD):
                        if one["regret"] is not None:
                            found[_place(verdict, one)] = max(1.0, positive(one["regret"]))
    return found


def heldout(table: Table, key: Key) -> tuple[HeldOutAt, ...]:
    """Regret at every n that was held out, the worst of the process parts that have one there."""
    worst: dict[int, float] = {}
    for section in sections_of(table, key):
        if section.heldout is not None:
            for n, regret in zip(section.heldout.n, section.heldout.regret, strict=True):
                worst[n] = max(regret, worst.get(n, 1.0))
    return tuple(HeldOutAt(n, worst[n]) for n in sorted(worst))
