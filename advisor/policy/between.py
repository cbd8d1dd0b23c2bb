"""A third choice between two tuned n whose choices differ: one that is near the best at both ends. Pure functions.

Of two choices each may be best at its own end and far off at the other; where their times cross, both are slow. A third
one that wins at neither end may be faster there: what it loses grows along a line in log time over log n, as that of
the two does. Judged by leaving each tuned n out of the logs beside the shipped tables and asking what is learned from
the rest there: docs/tables.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from advisor import codec
from advisor.records import Choice
from advisor.search.borders import BOUND, crossing

WORTH = 2 * BOUND
"""By what share a third choice must be expected to be faster: a row of its own is twice what the landing bar asks, as
nothing was raced there."""

Times = Mapping[Choice, float]
"""Choice -> ns of one call at a tuned n."""


class Stretch(NamedTuple):
    """The n for which a third choice is taken: from `first` to before `end`."""

    first: int
    end: int
    choice: Choice


Measured = Mapping[int, Times]
"""n between the two -> choice -> ns there: races for a border."""


def third(
    a: tuple[int, Choice, Times], b: tuple[int, Choice, Times], raced: Collection[Choice], measured: Measured
) -> Stretch | None:
    """The third choice between two neighbouring tuned n; None where none is worth it, or the ends are not known.

    Args:
        a, b: n, the choice taken there, and all times known there: those of first looks with their noise on top.
        raced: the choices that may be taken.
        measured: what was measured between them; what it says of the two choices counts before what is expected.
    """
    (low, ours, at_low), (high, theirs, at_high) = a, b
    known = [choice for choice in at_low if choice in at_high]
    if ours not in known or theirs not in known:
        return None

    def crossed(one: Choice, other: Choice) -> int:
        return crossing(low, high, math.log(at_low[one] / at_low[other]), math.log(at_high[one] / at_high[other]))

    def log_ns(choice: Choice, n: int) -> float:
        """Log of the time at n: measured there, else on the line between the ends."""
        if choice in measured.get(n, {}):
            return math.log(measured[n][choice])
        part = math.log(n / low) / math.log(high / low)
        return (1 - part) * math.log(at_low[choice]) + part * math.log(at_high[choice])

    def is_worth(choice: Choice, n: int) -> bool:
        return min(log_ns(ours, n), log_ns(theirs, n)) - log_ns(choice, n) > math.log1p(WORTH)

    border = crossed(ours, theirs)
    able = [choice for choice in known if choice in raced and choice not in (ours, theirs)]
    best = min(able, key=lambda choice: (log_ns(choice, border), codec.digest(choice)), default=ours)
    first, end = crossed(ours, best), crossed(best, theirs)
    checked = [border, *(n for n in measured if first <= n < end)]
    return Stretch(first, end, best) if first < end and all(is_worth(best, n) for n in checked) else None
