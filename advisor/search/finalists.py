"""Finalists: who races, given first looks."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Choice, Measurement, Process
from advisor.search.look import ranked

BEST = 4
"""The best first looks that race. Source: among the top five, re-measuring recovered what noise had cost."""

LEAST = 3
"""Finalists that race however little time there is."""


def finalists(measured: Sequence[Measurement], default: Choice, most: float) -> tuple[Choice, ...]:
    """The best-looking choices, the DEFAULT, and the best of each process part.

    Args:
        measured: first looks.
        default: always among them unless it failed.
        most: how many the time allows; the best-looking and the DEFAULT come first.

    Returns:
        Distinct choices that succeeded; empty when none did.
    """
    order = [measurement.choice for measurement in ranked(measured)]
    best_of: dict[Process | None, Choice] = {}
    for choice in order:
        best_of.setdefault(choice.process, choice)
    wanted = [*order[:2], *([default] if default in order else []), *best_of.values(), *order[2:BEST]]
    return tuple(dict.fromkeys(wanted))[: int(min(len(wanted), max(LEAST, most)))]
