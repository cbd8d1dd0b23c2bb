"""Counters in a deployment table: beside the time of the choice that they are of. docs/counters.md."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.kernels.gpu.counts import Counters, Counting, NoCounters
from advisor.policy.store import with_id
from advisor.records import Choice, Pairs, Point, Row, Section, Table, pairs


def with_counters(table: Table, countings: Sequence[Counting]) -> Table:
    """The table with what was counted at each tuned n, in the extra field `counters` of the point there.

    Args:
        table: a learned table.
        countings: of the table's choices or others, which are passed over; later ones count, but a refusal never in
            the place of counters.

    Returns:
        The same table. Where a choice of a section could not be counted, the section's extra field `no_counters` says
        why, what would help, and at which n that was; of several reasons the last.
    """
    return with_id(table._replace(sections=tuple(_section(section, countings) for section in table.sections)))


def figures(found: Counters) -> Pairs:
    """Counters as a point of a table has them: figures of one call, those that are known, and how they were come by."""
    known = {name: value for name, value in found.call._asdict().items() if value is not None and name != "name"}
    names = tuple(kernel.name for kernel in found.kernels)
    return pairs({**known, "kernels": names, "calls": found.calls, "caches": found.caches, "tool": found.tool})


def _section(section: Section, countings: Sequence[Counting]) -> Section:
    group = section.dtype, section.shape, section.regime
    own = [one for one in countings if (one.problem.dtype, one.problem.shape, one.problem.regime) == group]
    known = _latest(own)
    rows = tuple(_row(row, known) for row in section.rows)
    missing = [(n, one.none) for (n, choice), one in known.items() if one.none is not None and _is_of(rows, n, choice)]
    extra = {name: value for name, value in section.extra if name != "no_counters"}
    if missing:
        last = missing[-1][1]
        extra["no_counters"] = {**_told(last), "n": sorted({n for n, none in missing if none == last})}
    return section._replace(rows=rows, extra=pairs(extra))


def _latest(countings: Sequence[Counting]) -> dict[tuple[int, Choice], Counting]:
    """The last counters of each choice at each n; the last refusal where there never were any."""
    found: dict[tuple[int, Choice], Counting] = {}
    for one in countings:
        at = one.problem.n, one.choice
        if one.counters is not None or at not in found or found[at].counters is None:
            found[at] = one
    return found


def _told(none: NoCounters) -> dict[str, str]:
    return {"reason": none.reason, "remedy": none.remedy}


def _is_of(rows: Sequence[Row], n: int, choice: Choice) -> bool:
    return any(row.choice == choice and row.low <= n <= row.high for row in rows)


def _row(row: Row, known: dict[tuple[int, Choice], Counting]) -> Row:
    return row._replace(points=tuple(_point(point, known.get((point.n, row.choice))) for point in row.points))


def _point(point: Point, one: Counting | None) -> Point:
    if one is None or one.counters is None:
        return point
    return point._replace(extra=pairs({**dict(point.extra), "counters": dict(figures(one.counters))}))
