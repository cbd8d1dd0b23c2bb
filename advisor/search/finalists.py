"""Finalists: who races, given first looks and what the surrogate makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from advisor.records import Choice, Measurement, Process
from advisor.search.plan import LEAST_FINALISTS
from advisor.search.run import ranked, value_of

BEST, BELIEVED = 8, 8
"""The best first looks that race, and those of the looked at that the surrogate believes fastest, time allowing.

A first look of five samples may be a fifth off; the surrogate averages over a choice's neighbours. In replays with
recorded noise the best choice had been looked at and then not raced in one search of three without the second group.
"""

REACH = 1.15
"""The best look of each team and of each variant races where it is at most so far behind the best: looks of one team
lie close in time and share its noise, so that the eight best may all have a team that is 10 % slower than another."""


def finalists(
    measured: Sequence[Measurement], default: Choice, belief: Callable[[Choice], float], most: float
) -> tuple[Choice, ...]:
    """The best-looking choices, the DEFAULT, the best of each team, variant and process part, and those believed best.

    Args:
        measured: first looks.
        default: always among them unless it failed.
        belief: expected log time of a choice.
        most: how many the time allows; the best-looking, the DEFAULT and the one believed best come first.

    Returns:
        Distinct choices that succeeded; empty when none did.
    """
    looks = ranked(measured)
    order = [measurement.choice for measurement in looks]
    believed = sorted(order, key=belief)[:BELIEVED]
    best_of: dict[Process | None, Choice] = {}
    for choice in order:
        best_of.setdefault(choice.process, choice)
    first = [*order[:1], *([default] if default in order else []), *believed[:1]]
    wanted = dict.fromkeys([*first, *_of_each_part(looks), *best_of.values(), *_alternate(order[:BEST], believed)])
    return tuple(wanted)[: int(min(len(wanted), max(LEAST_FINALISTS, most)))]


def _of_each_part(looks: Sequence[Measurement]) -> list[Choice]:
    """Of those near the best look, the best of each team and of each variant; looks are best first."""
    bar = REACH * (value_of(looks[0]) or math.inf) if looks else 0.0
    near = [look.choice for look in looks if (value_of(look) or math.inf) <= bar]
    best: dict[object, Choice] = {}
    for choice in near:
        best.setdefault(choice.team, choice)
        best.setdefault(choice.build.variant, choice)
    return list(dict.fromkeys(best.values()))


def _alternate(looks: Sequence[Choice], believed: Sequence[Choice]) -> list[Choice]:
    return [choice for pair in zip(looks, believed, strict=False) for choice in pair]
