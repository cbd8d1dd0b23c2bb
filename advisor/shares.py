"""How several kernels share one budget: sizes that a share has room for, progress over the whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.search.request import Progress

SIZE_S = 3.0
"""Seconds that a size takes at least to come to something: builds, looks at a dozen choices, a short race."""


def room_for(sizes: tuple[int, ...], share_s: float | None) -> tuple[int, ...]:
    """As many of the sizes as a kernel's share has room for, both ends first, the others as even as can be.

    Args:
        sizes: ascending.
        share_s: the kernel's share of a budget; None: no limit.
    """
    most = len(sizes) if share_s is None else max(1, min(len(sizes), math.floor(share_s / SIZE_S)))
    if most == 1:
        return sizes[:1]
    last = len(sizes) - 1
    return tuple(sizes[round(i * last / (most - 1))] for i in range(most))


class OfMany:
    """Progress of one kernel among several: stages carry its name, and the time left is that of the whole run."""

    def __init__(self, inner: Progress, name: str, left_s: Callable[[], float | None]) -> None:
        self._inner, self._name, self._left_s = inner, name, left_s

    def stage(self, name: str, total: int | None) -> None:
        """A stage of this kernel begins."""
        self._inner.stage(f"{self._name}: {name}", total)

    def advance(self, text: str) -> None:
        """One step was done."""
        self._inner.advance(text)

    def seconds_left(self, seconds: float | None) -> None:
        """At most so much longer for this kernel, and so much for all."""
        left = self._left_s()
        self._inner.seconds_left(seconds if left is None else max(0.0, left))
