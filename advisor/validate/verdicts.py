"""What every finding rests on and comes to, and the words for figures. Pure."""

from __future__ import annotations

from typing import NamedTuple

from advisor.validate.records import (
    NOT_REPRODUCED,
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


def above(found: Estimate, limit: float) -> bool:
    """Whether a figure is above a limit with its whole interval."""
    return (found.value if found.low is None else found.low) > limit


def below(found: Estimate, limit: float) -> bool:
    """Whether a figure is below a limit with its whole interval."""
    return (found.value if found.high is None else found.high) < limit
