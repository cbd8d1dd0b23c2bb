"""The pace of compiling: how long the builds of some choices will take, judged by those before."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.records import Build, Choice
from advisor.search.space import binary

FIRST_S = 0.7
"""One build after another on one CPU, until some were timed."""


class Pace:
    """What was compiled so far and how long it took, `cpus` builds at a time."""

    def __init__(self, cpus: int) -> None:
        self._cpus = max(1, cpus)
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

    def _rounds_of(self, new: set[Build]) -> int:
        return math.ceil(len(new) / self._cpus)

    def _round_s(self) -> float:
        return self._seconds / self._rounds if self._rounds else FIRST_S
