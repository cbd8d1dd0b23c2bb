"""The pace of compiling: how long the builds of some choices will take, judged by those before."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor import sources
from advisor.kernels.variant import Variant
from advisor.records import Build, Choice
from advisor.search.space import binary

FIRST_S = 0.7
"""One build after another on one CPU, until some were timed, where nothing is known of the sources."""

BYTE_S = 5e-5
"""Seconds a byte of source and headers, alone on a core. Source: all variants here, gcc 12 -O3 on a Zen 3: 28 to 65 us
a byte in C, 80 to 140 in Fortran, which has few bytes."""

COMPILED = ("c", "fortran")

MOST_SLOW = 5.0
"""More than that is a stall and no pace."""


def first_s(variants: Sequence[Variant], slow: float = 1.0) -> float:
    """Seconds that one build of these takes, guessed from what there is to read, where builds take `slow` times as long
    as on a quiet core. The largest counts: it has the most knobs, and so the most builds."""
    sizes = [sum(map(len, sources.parts(one.path).values())) for one in variants if one.language in COMPILED]
    return slow * BYTE_S * max(sizes) if sizes else FIRST_S


def slowness(variants: Sequence[Variant], build_s: float | None, before: float) -> float:
    """How many times as long builds take as on a quiet core, by what one took; as `before` where none was made.

    Libraries that lay in the cache took nothing, so no machine is thought faster than a quiet one.
    """
    return before if build_s is None else min(MOST_SLOW, max(1.0, build_s / first_s(variants)))


class Pace:
    """What was compiled so far and how long it took, `cpus` builds at a time."""

    def __init__(self, cpus: int, first_s: float = FIRST_S) -> None:
        self._cpus, self._first_s = max(1, cpus), first_s
        self._done: set[Build] = set()
        self._rounds, self._seconds = 0, 0.0

    def seconds(self, choices: Sequence[Choice]) -> float:
        """Seconds that what is new among these may take."""
        return self._rounds_of({binary(choice.build) for choice in choices} - self._done) * self._round_s()

    def in_time(self, choices: Sequence[Choice], left_s: float) -> tuple[Choice, ...]:
        """The choices, in their order, as far as their builds may be ready in the time left."""
        most = math.inf if math.isinf(left_s) else max(0, math.floor(left_s / max(1e-3, self._round_s()))) * self._cpus
        new: set[Build] = set()
        kept = []
        for choice in choices:
            made = binary(choice.build)
            if made not in self._done and made not in new:
                if len(new) >= most:
                    continue
                new.add(made)
            kept.append(choice)
        return tuple(kept)

    def took(self, choices: Sequence[Choice], seconds: float) -> None:
        """These were compiled in so many seconds."""
        new = {binary(choice.build) for choice in choices} - self._done
        self._done |= new
        if new:
            self._rounds, self._seconds = self._rounds + self._rounds_of(new), self._seconds + seconds

    def measured_s(self) -> float | None:
        """Seconds that a build takes, as measured; None where none was made."""
        return self._round_s() if self._rounds else None

    def _rounds_of(self, new: set[Build]) -> int:
        return math.ceil(len(new) / self._cpus)

    def _round_s(self) -> float:
        return self._seconds / self._rounds if self._rounds else self._first_s
