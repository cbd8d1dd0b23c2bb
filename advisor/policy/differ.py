"""Tables beside each other: their rows as plain records, and where two of them say different things."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

from advisor.doubts import doubts
from advisor.policy.landing import mechanism
from advisor.policy.store import key
from advisor.records import Pairs, Process, Row, Section, Table


class Change(NamedTuple):
    """A range of n in which two tables take different choices.

    Attributes:
        dtype, shape, regime, process: the section.
        low, high: the range, both ends included.
        what: what differs, in words; `only before` or `only after` where one table has no row there.
        ratio: the first table's time over the second's, geometric mean over the n that both measured; None: none.
    """

    dtype: str
    shape: Pairs
    regime: str
    process: Process | None
    low: int
    high: int
    what: str
    ratio: float | None


def changes(before: Table, after: Table) -> tuple[Change, ...]:
    """Where two tables of one kernel say different things, section by section, ascending in n."""
    old, new = ({key(section): section for section in table.sections} for table in (before, after))
    found: list[Change] = []
    for one in sorted({**old, **new}, key=repr):
        found += _section(old.get(one), new.get(one), one)
    return tuple(found)


def _section(old: Section | None, new: Section | None, about: tuple[Any, ...]) -> list[Change]:
    rows = [section.rows if section else () for section in (old, new)]
    cuts = sorted({edge for own in rows for row in own for edge in (row.low, row.high + 1)})
    found: list[Change] = []
    for low, end in pairwise(cuts):
        one, other = (_row(own, low) for own in rows)
        if one is None and other is None:
            continue
        what = "only after" if one is None else "only before" if other is None else mechanism(one.choice, other.choice)
        if what:
            change = Change(about[0], about[1], about[2], about[3], low, end - 1, what, _ratio(one, other, low, end))
            if found and _go_on(found[-1], change):
                change = found.pop()._replace(high=change.high)
            found.append(change)
    return found


def _row(rows: tuple[Row, ...], n: int) -> Row | None:
    return next((row for row in rows if row.low <= n <= row.high), None)


def _go_on(one: Change, other: Change) -> bool:
    return one.high + 1 == other.low and one.what == other.what and one.ratio is None and other.ratio is None


def _ratio(one: Row | None, other: Row | None, low: int, end: int) -> float | None:
    if one is None or other is None:
        return None
    times = [{p.n: p.summary.p25_ns for p in row.points if low <= p.n < end} for row in (one, other)]
    logs = [math.log(times[0][n] / times[1][n]) for n in times[0] if n in times[1]]
    return math.exp(sum(logs) / len(logs)) if logs else None


# --- one table as records ---

COLUMNS = (
    *("dtype", "shape", "regime", "runtime", "wait_policy", "spin", "memory_policy", "low", "high", "variant"),
    *("knobs", "compiler"),
    *("flags", "threads", "placement", "n", "p25_ns", "basis", "doubts"),
)
"""Columns of a table's rows, one line for each n that was measured; n and p25_ns empty where none was. `doubts`: what
speaks against that figure, see `advisor.doubts`; empty for none."""


def lines(table: Table) -> tuple[dict[str, Any], ...]:
    """The rows of a table, a line for each of their measured n, as COLUMNS name them."""
    return tuple(
        line for section in table.sections for row in section.rows for line in _lines(section, row, dict(row.extra))
    )


def _lines(section: Section, row: Row, extra: dict[str, Any]) -> list[dict[str, Any]]:
    build, team, process = row.choice
    base = {
        "dtype": section.dtype,
        "shape": " ".join(f"{name}={value}" for name, value in section.shape),
        "regime": section.regime,
        "runtime": process.runtime if process else None,
        "wait_policy": process.wait_policy if process else None,
        "spin": process.spin if process else None,
        "memory_policy": process.memory_policy if process else None,
        "low": row.low,
        "high": row.high,
        "variant": build.variant,
        "knobs": " ".join(f"{name}={value}" for name, value in build.knobs),
        "compiler": build.compiler,
        "flags": build.flags,
        "threads": team.threads if team else None,
        "placement": team.placement if team else None,
        "basis": dict(section.extra).get("basis") or "EXACT",
    }
    told = [
        (point.n, point.summary.p25_ns, ", ".join(doubts(point.raced, point.contended)))
        for point in row.points
        if row.low <= point.n <= row.high
    ]
    told += [(one["n"], one["time_ns"], "") for one in extra.get("published") or ()]
    found = [{**base, "n": n, "p25_ns": ns, "doubts": words} for n, ns, words in told]
    return found or [{**base, "n": None, "p25_ns": None, "doubts": ""}]
