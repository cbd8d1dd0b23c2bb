"""Choices without their machine: what of a choice can be taken elsewhere, and what becomes of it there.

Variant and knobs, process part and placement expression are the same anywhere. Threads follow one of a few rules; which
one, what is known of the machines decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from advisor.device import is_device
from advisor.kernels.gpu.device import missing
from advisor.kernels.variant import Variant, for_machine, missing_isa
from advisor.records import Choice, Machine, Pairs, Process
from advisor.search.traits import Spot

RULES = ("share", "count", "caches")
"""How threads are carried over: the same share of the CPUs in reach; the same number, as far as there are so many CPUs;
the same number for each last-level cache. One thread stays one, all CPUs stay all."""


class Portable(NamedTuple):
    """A choice as it can be meant on any machine; `threads` 0 on a device."""

    variant: str
    knobs: Pairs
    threads: int
    wait_policy: str = "default"
    spin: int | None = None
    memory_policy: str = "default"

    @property
    def process(self) -> tuple[str, int | None, str]:
        """The process part without its runtime."""
        return self.wait_policy, self.spin, self.memory_policy


def portable(choice: Choice) -> Portable:
    """What of a choice can be taken elsewhere; tools, flags and placement are found again there."""
    part = process_of(choice.process)
    return Portable(choice.build.variant, choice.build.knobs, choice.team.threads if choice.team else 0, *part)


def process_of(process: Process | None) -> tuple[str, int | None, str]:
    """A process part without its runtime."""
    return ("default", None, "default") if process is None else (*process[1:],)


def carried_threads(threads: int, there: Spot, here: Spot, rule: str) -> int:
    """How many threads a choice has here.

    Args:
        threads: it has there; 0 on a device.
        there, here: the two machines.
        rule: one of `RULES`.
    """
    if threads <= 1:
        return threads
    if threads >= there.cpus:
        return here.cpus
    wanted = {
        "share": threads * here.cpus / there.cpus,
        "count": float(threads),
        "caches": threads * here.caches / there.caches,
    }[rule]
    return max(1, min(here.cpus, round(wanted)))


def carried(one: Portable, there: Spot, here: Spot, rule: str) -> Portable:
    """The choice with the threads that it has here; one thread waits for nobody."""
    threads = carried_threads(one.threads, there, here, rule)
    alone = threads == 1
    return one._replace(
        threads=threads, wait_policy="default" if alone else one.wait_policy, spin=None if alone else one.spin
    )


def able(variants: Iterable[Variant], machine: Machine) -> Callable[[Portable], bool]:
    """Whether a machine has the instruction sets of a choice, of its variant and of the values of its knobs; a device
    its compute capability."""
    device = is_device(machine.limits_id)
    lacks = partial(missing, gpu=machine.gpus[0]) if device else partial(missing_isa, machine=machine)
    own = {v.name: dict(v.build_knobs) for v in for_machine(tuple(variants), machine) if not lacks(v)}

    def runs(one: Portable) -> bool:
        knobs = own.get(one.variant)
        return knobs is not None and all(value in knobs[name] for name, value in one.knobs if name in knobs)

    return runs


def by_program(choices: Iterable[Choice]) -> dict[tuple[str, Pairs], list[Choice]]:
    """The listed choices by variant and knobs."""
    found: dict[tuple[str, Pairs], list[Choice]] = {}
    for choice in choices:
        found.setdefault((choice.build.variant, choice.build.knobs), []).append(choice)
    return found


def listed(
    wanted: Portable, like: Choice | None, programs: Mapping[tuple[str, Pairs], Sequence[Choice]]
) -> Choice | None:
    """The listed choice that is meant: this variant with these knobs, else None; the nearest team and process part.

    Args:
        wanted: as carried over.
        like: the choice that it was there, whose placement, flags and tool are taken where they are listed.
        programs: of the space here, see `by_program`.
    """
    alike = programs.get((wanted.variant, wanted.knobs))
    if not alike:
        return None

    def away(choice: Choice) -> tuple[float, ...]:
        threads = choice.team.threads if choice.team else 0
        same = like is not None
        return (
            process_of(choice.process) not in (wanted.process, ("default", None, "default")),
            abs(threads - wanted.threads),
            process_of(choice.process) != wanted.process,
            same and like is not None and choice.team is not None and choice.team.placement != _placement(like),
            same and like is not None and choice.build.flags != like.build.flags,
            same and like is not None and _family(choice) != _family(like),
        )

    return min(alike, key=away)


def _placement(choice: Choice) -> str:
    return choice.team.placement if choice.team else ""


def _family(choice: Choice) -> str:
    return choice.build.compiler.partition("-")[0]
