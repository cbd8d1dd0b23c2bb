"""Finalists: who races, given first looks and what the surrogate makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.records import Choice, Measurement, Process
from advisor.search.look import ranked
from advisor.search.plan import LEAST_FINALISTS

BEST, BELIEVED = 8, 8
"""The best first looks that race, and those of the looked at that the surrogate believes fastest, time allowing.

A first look of five samples may be a fifth off; the surrogate averages over a choice's neighbours. In replays with
recorded noise the best choice had been looked at and then not raced in one search of three without the second group.
"""


def finalists(
    measured: Sequence[Measurement], default: Choice, belief: Callable[[Choice], float], most: float
) -> tuple[Choice, ...]:
    """The best-looking choices, the DEFAULT, the best of each process part, and those believed best.

    Args:
        measured: first looks.
        default: always among them unless it failed.
        belief: expected log time of a choice.
        most: how many the time allows; the best-looking, the DEFAULT and the one believed best come first.

    Returns:
        Distinct choices that succeeded; empty when none did.
    """
    order = [measurement.choice for measurement in ranked(measured)]
    believed = sorted(order, key=belief)[:BELIEVED]
    best_of: dict[Process | None, Choice] = {}
    for choice in order:
        best_of.setdefault(choice.process, choice)
    first = [*order[:1], *([default] if default in order else []), *believed[:1]]
    wanted = dict.fromkeys([*first, *best_of.values(), *_alternate(order[:BEST], believed)])
    return tuple(wanted)[: int(min(len(wanted), max(LEAST_FINALISTS, most)))]


def _alternate(looks: Sequence[Choice], believed: Sequence[Choice]) -> list[Choice]:
    return [choice for pair in zip(looks, believed, strict=False) for choice in pair]
