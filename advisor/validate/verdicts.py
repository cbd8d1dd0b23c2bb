"""What every finding rests on and comes to, and the words for figures. Pure."""

from __future__ import annotations

from typing import NamedTuple

from advisor.validate.records import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    Crossover,
    Estimate,
    Fusion,
    Growth,
    Language,
    Node,
    Plateau,
    Series,
    StackCheck,
)

CLEAR = 1.10
"""A slowdown that counts: under it, caches and neighbours explain as much."""

PARITY = 1.25
"""Ratios between 1 / PARITY and PARITY are parity: the paper calls its 1.19 that."""

APART = 1.01
"""Ratios of separate races that differ by less are not told apart: a race of eleven rounds sees no less."""


class Evidence(NamedTuple):
    """All that findings may rest on."""

    node: Node
    series: tuple[Series, ...]
    growth: tuple[Growth, ...]
    crossovers: tuple[Crossover, ...]
    fusions: tuple[Fusion, ...]
    plateau: tuple[Plateau, ...]
    stack: tuple[StackCheck, ...]
    languages: tuple[Language, ...] = ()


class Case(NamedTuple):
    """A verdict in the making."""

    ours: str
    verdict: str
    why: str


def words(found: Estimate | None) -> str:
    """A figure with its interval, where there is one."""
    if found is None:
        return "-"
    ends = "" if found.low is None or found.high is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}{ends}"


def verdict(good: bool) -> str:
    """Reproduced or not."""
    return REPRODUCED if good else NOT_REPRODUCED


def decided(good: bool, bad: bool, case: tuple[str, str], *found: Estimate) -> Case:
    """Reproduced or not where whole intervals say so; noise and single figures decide nothing.

    Args:
        good: whether intervals show the finding.
        bad: whether they show that it does not hold.
        case: our figure, and why it comes to that.
        found: what was judged.
    """
    ours, why = case
    if good or bad:
        return Case(ours, verdict(good), why)
    few = any(one.low is None or one.high is None for one in found)
    return Case(ours, NOT_TESTABLE, f"{why}; {FEW if few else NOISY}")


FEW = "too few rounds for an interval"
NOISY = "an interval holds the limit: too noisy to tell"


def above(found: Estimate, limit: float) -> bool:
    """Whether a figure is above a limit with its whole interval; not without one."""
    return found.low is not None and found.low > limit


def below(found: Estimate, limit: float) -> bool:
    """Whether a figure is below a limit with its whole interval; not without one."""
    return found.high is not None and found.high < limit


def within(found: Estimate, low: float, high: float) -> bool:
    """Whether its whole interval lies between two limits."""
    return above(found, low) and below(found, high)


def outside(found: Estimate, low: float, high: float) -> bool:
    """Whether its whole interval lies on one side of both limits."""
    return below(found, low) or above(found, high)
