"""Counted words: `1 thread`, `2 threads`. Standard library only and no `typing`: the hot path imports this module."""

from __future__ import annotations


def many(count: float, noun: str, plural: str = "") -> str:
    """A count with its noun, in the singular for exactly one.

    Args:
        count: how many; a fraction is written with six digits at most.
        noun: in the singular.
        plural: where an s at the end does not make it.
    """
    number = str(count) if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else plural or f'{noun}s'}"
