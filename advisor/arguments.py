"""Readers of command-line words: sizes, durations. Each refuses with the rule, the word, and what is allowed."""

from __future__ import annotations

import re

from advisor.errors import BadInput

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FACTORS = {"": 1, "k": 1024, "m": 1024 * 1024}


def _size(word: str) -> int:
    found = re.fullmatch(r"(\d+)([kKmM]?)", word.strip())
    if not found or int(found[1]) < 1:
        raise BadInput(
            "a size is a whole number of at least 1", got=word, allowed="4096, or 4k, or 1m (k and m are 1024-based)"
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
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text.strip())
    if not found or float(found[1]) <= 0:
        raise BadInput("a duration is a positive number with a unit", got=text, allowed="90s, 2m, 1h")
    return float(found[1]) * _SECONDS[found[2]]
