"""What speaks against a figure of a table: one rule for the lookup, `advisor check`, reports and exports.

Standard library only and no `typing` at run time: the hot path imports this module.
"""

from __future__ import annotations

FEW, CONTENDED = "few samples", "contended"

SENTENCES = {
    FEW: "few samples: too few to rank by, of a first look or a race that ended early",
    CONTENDED: "contended: most of its samples were taken while other processes held its threads off their CPUs",
}
"""Each doubt in full."""


def doubts(raced: bool, contended: bool) -> tuple[str, ...]:
    """The doubts on one figure, in short.

    Args:
        raced: of a race with samples enough to rank by.
        contended: half of its samples or more were disturbed.
    """
    return (*(() if raced else (FEW,)), *((CONTENDED,) if contended else ()))


def gain(own_ns: float | None, default_ns: float | None, contended: bool) -> float | None:
    """Time of the default choice over that of a choice, at one n.

    Args:
        own_ns, default_ns: None where a time is not known.
        contended: one of both is: a ratio that says more about the neighbours is none.
    """
    return None if contended or not own_ns or not default_ns else default_ns / own_ns
