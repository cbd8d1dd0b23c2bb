"""What is settled: the one rule of what a race may say, for tables, the gate, the single setting and the sheet.

A race of fewer than LEAST_ROUNDS rounds ranks nothing, and the time of a choice that was dropped before is a rough one:
such times are known, but displace none that is better known. Nor do those that were taken while others held the threads
off their CPUs.
"""

from __future__ import annotations

from advisor.records import Standing, Verdict
from advisor.search.race import LEAST_ROUNDS

THIN, CONTENDED, QUIET = range(3)
"""How well a raced time is known: of too few samples to rank by; of enough, most of them disturbed; of enough."""


def is_settled(race: Verdict) -> bool:
    """Whether a race had rounds enough to say which of its choices is faster."""
    return race.rounds >= LEAST_ROUNDS


def ranks(standing: Standing) -> bool:
    """Whether a choice may be ranked by its standing: it did not fail and has samples enough."""
    return bool(standing.summary and standing.summary.samples >= LEAST_ROUNDS and standing.outcome != "failed")


def weight(samples: int, contended: bool) -> int:
    """How well a raced time is known; one that is known as well or better takes the place of an earlier one.

    Args:
        samples: of the choice in its race.
        contended: half of them or more were disturbed.
    """
    if samples < LEAST_ROUNDS:
        return THIN
    return CONTENDED if contended else QUIET
