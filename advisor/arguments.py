"""Readers of command-line words: sizes, durations. Each refuses with the rule, the word, and what is allowed."""

from __future__ import annotations

import re

from advisor.errors import BadInput

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FACTORS = {"": 1, "k": 1024, "m": 1024 * 1024}

_DIGITS = 15
"""A size of more digits fits no memory, and the product of a few of them no 64-bit count."""

_LONGEST_S = 366 * 24 * 3600.0
"""A longer budget is a slip of the keyboard, and an infinite one no number that a log can hold."""


def _size(word: str) -> int:
    found = re.fullmatch(r"([0-9]+)([kKmM]?)", word.strip())
    if not found or len(found[1]) > _DIGITS or int(found[1]) < 1:
        raise BadInput(
            f"a size is a whole number of at least 1 and at most {_DIGITS} digits",
            got=word if len(word) <= 2 * _DIGITS else f"{word[:_DIGITS]}...",
            allowed="4096, or 4k, or 1m (k and m are 1024-based)",
        )
    return int(found[1]) * _FACTORS[found[2].lower()]


def sizes(text: str) -> tuple[int, ...]:
    """Swept sizes from `64..8192` (doubling from the first, the last always included) or `1024,4096,16k`.

    Returns:
        Distinct sizes, ascending.

    Raises:
        BadInput: not a size, or an empty or falling range.
    """
    found: set[int] = set()
    for word in text.split(","):
        low, dots, high = word.partition("..")
        first = _size(low)
        last = _size(high) if dots else first
        if last < first:
            raise BadInput("a range of sizes rises", got=word, allowed="LOW..HIGH with LOW <= HIGH")
        found.add(last)
        while first <= last:
            found.add(first)
            first *= 2
    return tuple(sorted(found))


def seconds(text: str) -> float:
    """A duration such as `90`, `90s`, `2m` or `1h` in seconds.

    Raises:
        BadInput: not a duration, or not positive.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|)", text.strip())
    duration = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < duration <= _LONGEST_S:
        raise BadInput("a duration is a positive number with a unit, at most a year", got=text, allowed="90s, 2m, 1h")
    return duration
