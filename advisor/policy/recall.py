"""What a table remembers, as evidence to learn from: at an n of which no race is at hand, its choice has won there.

The log is not always at hand: it may be removed, a table comes from elsewhere, or the log's races were run in another
environment, which makes no row stale. What is learned then must not forget the n that nobody raced now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from advisor.records import Choice, Point, Problem, Row, Section, Standing, Table, Verdict


class Recalled(NamedTuple):
    """A race for each n, in which what the table says has won, and the points that the races are made of."""

    verdicts: tuple[Verdict, ...] = ()
    points: tuple[tuple[Problem, Choice, Point], ...] = ()


def recall(table: Table, shape: Problem, picks: Mapping[int, Choice], rows: Collection[Row]) -> Recalled:
    """The evidence that a table holds.

    Args:
        table: with the sections of one shape.
        shape: a problem of that shape.
        picks: n -> what the table says there; for these n.
        rows: those whose figures still hold; no others are recalled.
    """
    verdicts, points = [], []
    for n, pick in sorted(picks.items()):
        known = {choice: point for section in table.sections for choice, point in _known(section, n, rows)}
        default = next((s.default for s in table.sections if s.process == pick.process), table.sections[0].default)
        problem = shape._replace(n=n)
        verdicts.append(_race(problem, pick, default, known))
        points += [(problem, choice, point) for choice, point in known.items()]
    return Recalled(tuple(verdicts), tuple(points))


def _known(section: Section, n: int, rows: Collection[Row]) -> list[tuple[Choice, Point]]:
    """The choices of a section with figures at n; the default has its own."""
    own = [*section.rows, *(row for other in section.alternatives for row in other.rows)]
    found = [(row.choice, point) for row in own if row in rows for point in row.points if point.n == n]
    return [*found, *((section.default, point) for point in section.default_points if point.n == n)]


def _race(problem: Problem, pick: Choice, default: Choice, known: Mapping[Choice, Point]) -> Verdict:
    own = known.get(pick)
    others = [(choice, point) for choice, point in known.items() if choice != pick]
    first = Standing(pick, "winner", own.summary if own else None, 1.0 if own else None, None)
    left = [
        Standing(c, "slower", p.summary, p.summary.p25_ns / own.summary.p25_ns if own else None, None)
        for c, p in others
    ]
    standings = tuple(s._replace(contended=_contended(known.get(s.choice))) for s in (first, *left))
    return Verdict(problem, "final", pick, default, own.summary.samples if own else 0, standings)


def _contended(point: Point | None) -> bool:
    return bool(point and dict(point.extra).get("contended"))
