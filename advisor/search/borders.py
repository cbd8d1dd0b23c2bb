"""Ranges of n: the fewest that keep the loss within a bound, and where one choice gives way to the next. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from advisor.records import Choice, Verdict
from advisor.search.settled import ranks

BOUND = 0.015
"""What a choice may lose to the best at a tuned n and still be taken there, so that neighbouring ranges are one: the
landing bar, under which nothing is worth a change. Source: design.md, "What makes an answer trustworthy", 5."""

Same = Callable[[Choice], Choice]
"""How a choice is named where several are one: one thread under whatever wait policy."""


class Cell(NamedTuple):
    """A tuned n: the best choice there, and what choices that raced it lose: log of their time over its; at least 0."""

    n: int
    best: Choice
    losses: Mapping[Choice, float]


# --- what races say ---


def log_ratio(races: Sequence[Verdict], n: int, ours: Choice, theirs: Choice, same: Same) -> float | None:
    """Log of the time of one choice over another's at n, from the latest race that both ran to its end, else from the
    latest that both ran; None without any."""
    here = [race for race in reversed(races) if race.problem.n == n]
    for race in (*map(_settled, here), *here):
        times = {same(s.choice): s.summary.p25_ns for s in race.standings if s.summary}
        if ours in times and theirs in times:
            return math.log(times[ours] / times[theirs])
    return None


def cell(races: Sequence[Verdict], n: int, best: Choice, rivals: Sequence[Choice], same: Same) -> Cell:
    """What the rivals lose to the best choice at n, as far as races of enough rounds say.

    One that failed in the last race it ran there loses all, whatever its time was in an older one.
    """
    here = [race for race in races if race.problem.n == n]
    last = {same(s.choice): s.outcome for race in here for s in race.standings}
    sure = [_settled(race) for race in here]
    found = {other: log_ratio(sure, n, other, best, same) for other in rivals if last.get(other) != "failed"}
    losses = {other: max(0.0, loss) for other, loss in found.items() if loss is not None}
    return Cell(n, best, {**losses, best: 0.0})


def _settled(race: Verdict) -> Verdict:
    """The race without those that have too few samples to rank by, or failed."""
    return race._replace(standings=tuple(filter(ranks, race.standings)))


# --- ranges ---


def fewest(cells: Sequence[Cell], bound: float = BOUND) -> list[Choice]:
    """The choice to take at each n, so that as few ranges as can be lose no more than a bound at any n.

    Of several ways with as few ranges, the one with the lowest geometric mean of the losses.

    Args:
        cells: ascending in n.
        bound: loss at most, a share.
    """
    most, order = math.log1p(bound), list(dict.fromkeys(one.best for one in cells))
    ways: dict[Choice, tuple[int, float, list[Choice]]] = {}
    for one in cells:
        able = [choice for choice in order if one.losses.get(choice, math.inf) <= most]
        ways = {choice: _cheapest(ways, choice, one.losses[choice]) for choice in able}
    return min(ways.values(), key=lambda way: (way[0], round(way[1], 12)))[2] if ways else []


def _cheapest(
    ways: Mapping[Choice, tuple[int, float, list[Choice]]], choice: Choice, loss: float
) -> tuple[int, float, list[Choice]]:
    """The best way to come to a choice at the next n: ranges so far, sum of the log losses, the choices."""
    before = [(count + (last != choice), total, path) for last, (count, total, path) in ways.items()]
    count, total, path = min(before, key=lambda way: (way[0], round(way[1], 12)), default=(1, 0.0, []))
    return count, total + loss, [*path, choice]


# --- borders ---


def crossing(a: int, b: int, at_a: float | None, at_b: float | None) -> int:
    """The first whole n from which the right choice is taken; strictly between a and b where there is one.

    Times interpolated linearly in log time over log n cross where their log ratio, linear in log n too, is zero.

    Args:
        a, b: two measured n, a < b.
        at_a, at_b: log of (time of the left choice / time of the right one) at a and at b; None when not measured.

    Returns:
        The border; the geometric mean of a and b where nothing is known or the times do not cross.
    """
    if at_a is None or at_b is None or (at_a >= 0 >= at_b):
        part = 0.5
    else:
        part = min(1.0, max(0.0, at_a / (at_a - at_b))) if at_a < 0 < at_b else float(at_a < 0)
    border = round(math.exp(math.log(a) + part * math.log(b / a)))
    return max(a + 1, min(border, b - 1)) if b - a > 1 else b


Ratio = tuple[int, float | None]
"""n, and the log of (time of the left choice / time of the right one) there."""


def bracket(ratios: Sequence[Ratio]) -> tuple[Ratio, Ratio]:
    """The two neighbouring n between which the right choice takes over, so that what was measured there loses least.

    Args:
        ratios: ascending in n; the first n is the left choice's, the last the right one's, and what lies between them
            was measured to place the border.
    """

    def lost(first: int) -> float:
        left, right = ratios[1:first], ratios[first:-1]
        return sum(max(0.0, r or 0.0) for _, r in left) + sum(max(0.0, -(r or 0.0)) for _, r in right)

    first = min(range(1, len(ratios)), key=lambda index: (round(lost(index), 12), index))
    return ratios[first - 1], ratios[first]


def border(ratios: Sequence[Ratio]) -> int:
    """The first n of the right choice; `ratios` as for `bracket`."""
    (a, at_a), (b, at_b) = bracket(ratios)
    return crossing(a, b, at_a, at_b)
