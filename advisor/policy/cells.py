"""Which cells of a table a short check measures: those whose loss would cost most. Pure functions of the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from advisor import doubts
from advisor.records import Choice, Point, Problem, Row, Section, Summary
from advisor.search.known import same_program
from advisor.tuning_result import best_of

FEWEST = 3
"""Samples that the DEFAULT has at least before a race drops it."""


class Cell(NamedTuple):
    """One choice of a table at one tuned n.

    Attributes:
        problem, choice: what is run.
        reference: the DEFAULT choice, beside which it was raced.
        recorded: both figures in the table, the choice's first; None where there are none to compare with.
        gain: the reference's time over the choice's; None where there is nothing to compare.
        fragility: mean time beside a busy neighbour over the quiet one; None where that was not measured.
        why: why there is nothing to compare, where figures are there; empty otherwise.
    """

    problem: Problem
    choice: Choice
    reference: Choice
    recorded: tuple[Summary, Summary] | None
    gain: float | None
    fragility: float | None
    why: str = ""


def cells(kernel: str, sections: Sequence[Section]) -> tuple[Cell, ...]:
    """What a table says at each tuned n of one shape, under the process part that is best there.

    Args:
        kernel: its name.
        sections: of one dtype, shape and regime, all process parts. Where rows are left out, their n have no cell.
    """
    found = []
    for n in sorted({n for section in sections for n in section.tuned_n}):
        own = [section for section in sections if n in section.tuned_n]
        section = best_of(own, n)
        row = _row(section, n)
        if row is not None:
            found.append(_cell(kernel, section, row, n))
    return tuple(found)


def _row(section: Section, n: int) -> Row | None:
    return next((row for row in section.rows if row.low <= n <= row.high), None)


def _point(points: Sequence[Point], n: int) -> Point | None:
    return next((point for point in points if point.n == n), None)


def _cell(kernel: str, section: Section, row: Row, n: int) -> Cell:
    """The figures count where they come from a race and were not disturbed; a default choice that was hopeless was
    dropped from it after a few rounds, and counts all the same. One thread waits for nobody, so that its
    process part is the default one: a worker less to start."""
    problem = Problem(kernel, section.dtype, section.shape, n, section.regime)
    own, default = _point(row.points, n), _point(section.default_points, n)
    choice, reference = same_program(row.choice), same_program(section.default)
    cell = Cell(problem, choice, reference, None, None, own.fragility if own else None)
    if own is None or default is None or choice == reference:
        return cell
    enough = default.summary.samples >= FEWEST
    said = [*doubts.doubts(own.raced, own.contended), *doubts.doubts(enough, default.contended)]
    if said:
        return cell._replace(why=f"{doubts.SENTENCES[said[0]]} when it was tuned")
    both = own.summary, default.summary
    gain = doubts.gain(own.summary.p25_ns, default.summary.p25_ns, contended=False)
    return cell._replace(recorded=both, gain=gain)


def ranked(found: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of a kernel, those first that are worth most.

    The largest gain and the greatest fragility in turns; a choice that came before goes behind those that did not, and
    cells without a figure to compare with go last.
    """
    gains = sorted(found, key=lambda cell: -(cell.gain or 0.0))
    fragile = sorted(found, key=lambda cell: -(cell.fragility or 0.0))
    order = dict.fromkeys(one for one in chain.from_iterable(zip_longest(gains, fragile)) if one is not None)
    seen: Counter[Choice] = Counter()
    placed: list[tuple[bool, int, int, Cell]] = []
    for cell in order:
        placed.append((cell.recorded is None, seen[cell.choice], len(placed), cell))
        seen[cell.choice] += 1
    return tuple(cell for *_, cell in sorted(placed, key=lambda entry: entry[:3]))
