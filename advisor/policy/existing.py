"""Where a choice is made: headers bound n, and a table must name no choice at an n where its variant is not made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.records import Choice

Exists = Callable[[Choice, int], bool]
"""Whether a choice is made for an n of a shape, by the header of its variant."""

PROBES = tuple(sorted({(1 << i) + more for i in range(21) for more in (0, 1)}))
"""n at which it is asked whether a choice is made everywhere: powers of two, and odd ones beside them."""


def within(place: int, left: tuple[int, Choice], right: tuple[int, Choice], exists: Exists) -> int:
    """The border moved to where both choices are made for the n on their side. Headers bound n from above or below, so
    that each is up to some n, or from some n on; where neither is, there is nothing to choose.

    Args:
        place: the first n of the right choice as far as times go.
        left, right: a tuned n and its choice on either side.
        exists: whether a choice is made for an n.
    """
    last, first = ends(left, right, exists)
    return max(min(place, last + 1), min(first, last + 1))


def ends(left: tuple[int, Choice], right: tuple[int, Choice], exists: Exists) -> tuple[int, int]:
    """The last n between two tuned ones for which the left choice is made, and the first for which the right one is."""
    (a, ours), (b, theirs) = left, right
    last = _edge(a, b - 1, lambda n: exists(ours, n))
    return last, a + b - _edge(a, b - 1, lambda n: exists(theirs, a + b - n))


def _edge(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last n of a range up to which something holds that holds at its first."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def widest(choices: Sequence[Choice], tuned: Sequence[int], exists: Exists) -> Choice:
    """The first of some choices that is made for the most n: for what answers wherever nothing was measured.

    Args:
        choices: at least one, the preferred first.
        tuned: n at which it should be made besides PROBES.
        exists: whether a choice is made for an n.
    """
    asked = (*PROBES, *tuned)
    return max(dict.fromkeys(choices), key=lambda choice: sum(exists(choice, n) for n in asked))
