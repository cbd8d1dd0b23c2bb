"""How several kernels share one budget: sizes that a share has room for, progress over the whole."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from advisor.kernels.spec import KernelSpec
    from advisor.kernels.variant import Variant
    from advisor.records import Problem
    from advisor.search.request import Progress

SIZE_S = 3.0
"""Seconds that a size takes at least to come to something: builds, looks at a dozen choices, a short race."""

START_S = 3.0
"""Seconds of a kernel's tuning on a quiet machine beside builds and measuring: workers start, a table is learned."""

ELEMENT_S = 2e-8
"""Seconds an element that a DNF reads, of making its inputs and its reference. Source: the block of an 8 billion
parameter Llama, 3.8 s for 218 million weights on a core of a Zen 3; its gradients 4.1 s."""

DRAWINGS = 2
"""So often they are made: for the search, and for running the winner again in a fresh process."""

BUILD_ROUNDS = 2
"""Rounds of builds, one a CPU, that bring the default choice and a rival."""

LOOK_CALLS, CALLS = 8, 48
"""Calls of a first look, its check included; of three first looks, a race of a few rounds, and running it again."""

FIRST_SHARE = 0.6
"""Of a kernel's time, what the least table at its smallest size may take; else a smaller size is taken."""

LIMIT_SHARE, LEAST_LIMIT_S, LIMIT_LOOKS = 1 / 8, 5.0, 5.0
"""Limit of one trial: this share of a budget, so that what hangs takes a small part of it; never less than so many
seconds, since a crowded machine may need them for what it does at once on its own, nor than so many times what a first
look is expected to take."""


class Room(NamedTuple):
    """What one kernel's tuning has: seconds (None: no limit), on a machine that takes `slow` times as long for
    everything as a quiet one."""

    seconds: float | None = None
    slow: float = 1.0


UNLIMITED = Room()


class Need(NamedTuple):
    """A kernel's smallest problem and its sources: what the least table of it takes follows from them."""

    spec: KernelSpec
    problem: Problem
    variants: tuple[Variant, ...]


def look_s(spec: KernelSpec, problem: Problem, slow: float) -> float:
    """Seconds that a first look takes, the check of what it computes included, without building and without inputs."""
    from advisor.search.seeds import call_s

    return slow * (LOOK_CALLS * call_s(spec, problem) + ELEMENT_S * sum(spec.elements(problem)))


def least_s(need: Need, slow: float) -> float:
    """Seconds that the least table of a kernel takes: its default choice and a rival, raced at the smallest size.

    On a device, for which variants are in a language of its own, calls, inputs and references are made there.
    """
    from advisor.kernels.header import GPU_LANGUAGES
    from advisor.search.pace import first_s
    from advisor.search.plan import DEVICE_SPEED
    from advisor.search.seeds import call_s

    on_device = any(variant.language in GPU_LANGUAGES for variant in need.variants)
    drawing = DRAWINGS * ELEMENT_S * need.spec.elements(need.problem).read
    work_s = CALLS * call_s(need.spec, need.problem) + drawing
    own_s = START_S + work_s / (DEVICE_SPEED if on_device else 1.0)
    return slow * own_s + BUILD_ROUNDS * first_s(need.variants, slow)


def crowding() -> float:
    """How many tasks wait for each CPU of the machine, over the last minute, at least 1: so many times as long as on a
    quiet one everything takes."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def share_of(left_s: float, needs: Sequence[float]) -> float:
    """Seconds for the first of several kernels: what it needs at least, and an equal part of what all leave; in
    proportion where there is not enough for all.

    Args:
        left_s: of the budget.
        needs: what each of the kernels left needs at least, in seconds, the first one's first.
    """
    whole = sum(needs)
    return left_s * needs[0] / whole if left_s < whole else needs[0] + (left_s - whole) / len(needs)


def trial_limit(room: Room, spec: KernelSpec, problem: Problem, most_s: float) -> float:
    """Wall-clock limit of one measurement in seconds, at most `most_s`."""
    if room.seconds is None:
        return most_s
    needed = min(room.seconds / 2, LIMIT_LOOKS * look_s(spec, problem, room.slow))
    return min(most_s, max(LEAST_LIMIT_S, room.seconds * LIMIT_SHARE, needed))


def within_room(needs: Sequence[tuple[int, Need]], room: Room, usual: int) -> int:
    """The smallest size to take: `usual`, or the largest below for which a kernel's share has room.

    Args:
        needs: sizes up to `usual`, ascending, each with what it needs.
        room: the kernel's share.
        usual: the smallest that suits the kernel.
    """
    if room.seconds is None:
        return usual
    fits = [n for n, need in needs if least_s(need, room.slow) <= FIRST_SHARE * room.seconds]
    return max(fits, default=needs[0][0])


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
