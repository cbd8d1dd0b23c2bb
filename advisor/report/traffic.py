"""What a call must move, as the kernel's definition and the variant's header predict it, beside what was achieved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from advisor.errors import AdvisorError
from advisor.kernels import registry
from advisor.kernels.expressions import evaluate
from advisor.kernels.header import CPU_LANGUAGES, GPU_LANGUAGES, Variant
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.variant import names, variants
from advisor.records import Build, Machine, Problem
from advisor.report.digest import ODD, Key, Step, positive
from advisor.signature.keep import signature_of


class Moved(NamedTuple):
    """Elements of one call and the rate that follows; None: unknown.

    `least`: each input read once and each output written once. `predicted`: of the variant, read and written, where its
    source is here in that version. `gb_per_s`: `least` in bytes of the dtype, over the measured time.
    `dram_bytes`: counted on a GPU.
    """

    n: int
    least: int
    predicted: tuple[int, int] | None
    gb_per_s: float | None
    dram_bytes: float | None


class ReadFloor(NamedTuple):
    """The fastest rate that a signature knows of a level: memory or l3. GB/s are 10^9 bytes a second."""

    level: str
    gb_per_s: float
    threads: int


def moved(key: Key, steps: Iterable[Step]) -> tuple[Moved, ...]:
    """One a step; none where the kernel is not installed here."""
    try:
        spec = registry.spec(key.kernel)
        known = {
            (v.name, v.source_hash): v
            for languages in (CPU_LANGUAGES, GPU_LANGUAGES)
            for v in variants(key.kernel, (), languages)
        }
    except AdvisorError:
        return ()
    found = []
    for step in steps:
        problem = Problem(key.kernel, key.dtype, key.shape, step.n, key.regime)
        try:
            least = sum(spec.elements(problem))
        except (AdvisorError, KeyError):  # a shape of another version of the kernel
            return ()
        size = ITEM_BYTES.get(key.dtype)
        rate = least * size / step.ns if step.ns and size else None
        found.append(Moved(step.n, least, _predicted(known, problem, step.choice.build), rate, _counted(step)))
    return tuple(found)


def _predicted(known: dict[tuple[str, str], Variant], problem: Problem, build: Build) -> tuple[int, int] | None:
    variant = known.get((build.variant, build.source_hash))
    if variant is None:
        return None
    try:
        there = names(problem, build.knobs)
        return evaluate(variant.reads, there), evaluate(variant.writes, there)
    except AdvisorError:  # a GPU's header may use names that only a launch has
        return None


def _counted(step: Step) -> float | None:
    """Bytes of device memory that a call moved, where they were counted."""
    figures = None if step.point is None else dict(step.point.extra).get("counters")
    try:
        counted = dict(figures or ())
        both = [counted[name] for name in ("dram_read_bytes", "dram_written_bytes")]
        return sum(0.0 if one == 0 else positive(one) for one in both)
    except ODD:
        return None


def floors(machine: Machine | None) -> tuple[ReadFloor, ...]:
    """The best rate of each level of a machine's signature; none without one."""
    try:
        found = None if machine is None else signature_of(machine)
    except AdvisorError:
        return ()
    best: dict[str, ReadFloor] = {}
    for one in () if found is None else found.read:
        if one.level not in best or one.gb_per_s > best[one.level].gb_per_s:
            best[one.level] = ReadFloor(one.level, one.gb_per_s, one.threads)
    return tuple(best.values())
