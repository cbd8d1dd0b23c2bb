"""What is counted of one call on a device, and the predictions that it stands beside. docs/counters.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from advisor.kernels.expressions import evaluate
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.geometry import launch_names
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Choice, Problem

SECTOR_BYTES = 32
"""Of the L2. Source: Nsight Compute, Profiling Guide, "L2 Cache"."""


class Kernel(NamedTuple):
    """Figures of one kernel of a call, or of a whole call; None where ncu had none.

    Attributes:
        name: the kernel's function.
        duration_ns: under the profiler, alone on the device; not the time of a choice.
        dram_read_bytes, dram_written_bytes: between L2 and memory.
        l2_read_sectors, l2_written_sectors: of 32 bytes, asked of the L2 by multiprocessors.
        global_reductions: reductions on global memory (red) that warps executed.
        l2_atomic_sectors: of atomics that return a value (atom), of which hardware counts the sectors.
        achieved_occupancy: warps that were active over the most that a multiprocessor holds, 0 to 1.
        theoretical_occupancy: the same as registers, shared memory and block size allow it.
        read_sector_bytes, written_sector_bytes: of a sector's 32, those that threads asked for, over global accesses.
        read_request_sectors, written_request_sectors: sectors of one request of a warp: 4 where 32 threads take
            neighbouring numbers of 4 bytes, 32 where each lies in a sector of its own.
        stalls: (what warps waited for, how many did per cycle in which one was issued), the three longest waits.
    """

    name: str
    duration_ns: float | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    l2_read_sectors: float | None = None
    l2_written_sectors: float | None = None
    global_reductions: float | None = None
    l2_atomic_sectors: float | None = None
    achieved_occupancy: float | None = None
    theoretical_occupancy: float | None = None
    read_sector_bytes: float | None = None
    written_sector_bytes: float | None = None
    read_request_sectors: float | None = None
    written_request_sectors: float | None = None
    stalls: tuple[tuple[str, float], ...] | None = None


class Counters(NamedTuple):
    """What one call of a choice did.

    Attributes:
        call: the whole call: sums of its kernels; occupancies, ratios and stalls of the kernel that took longest.
        kernels: each kernel of a call in order, medians over the calls that were counted.
        calls: how many were counted.
        caches: flushed (before each pass over a kernel) or kept.
        tool: what counted.
        seconds: wall time that it took; of several choices counted together, their share.
        passes: how many times ncu ran a kernel, of the one that took most.
    """

    call: Kernel
    kernels: tuple[Kernel, ...]
    calls: int
    caches: str
    tool: str
    seconds: float
    passes: int | None = None


class NoCounters(NamedTuple):
    """Why there are none, and what would help, who can do it. `everywhere`: no other choice here fares better."""

    reason: str
    remedy: str
    everywhere: bool = True


SUMMED = tuple(metric.field for metric in ncu.SUMMED)

MOST_STALLS = 3
"""Reasons that are told: what warps wait for longest."""


def in_total(kernels: Sequence[Kernel]) -> Kernel:
    """Figures of a whole call: sums, None where a kernel's part is unknown; all others of the longest kernel."""
    longest = max(kernels, key=lambda kernel: kernel.duration_ns or 0.0)
    sums: dict[str, Any] = {name: _sum([getattr(kernel, name) for kernel in kernels]) for name in SUMMED}
    return longest._replace(name=" + ".join(kernel.name for kernel in kernels), **sums)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def longest_waits(stalls: Mapping[str, float]) -> tuple[tuple[str, float], ...] | None:
    """The reasons for which most warps waited, the longest first; None where nothing is known.

    Args:
        stalls: warps that waited per issue, by reason.
    """
    known = sorted(((reason, warps) for reason, warps in stalls.items() if warps > 0), key=lambda one: -one[1])
    return tuple(known[:MOST_STALLS]) if stalls else None


# --- what a counter stands beside ---


class Predicted(NamedTuple):
    """What formulas say of one call, named as the figures that they stand beside.

    Attributes:
        dram_read_bytes, dram_written_bytes: of the DNF: each input read once, each output written once.
        l2_read_sectors, l2_written_sectors: what the variant says that it asks for, whatever caches do.
        atomics: updates of global memory: reductions and atomics together.
    """

    dram_read_bytes: int
    dram_written_bytes: int
    l2_read_sectors: float
    l2_written_sectors: float
    atomics: int


def predicted(spec: KernelSpec, variant: Variant, problem: Problem, choice: Choice) -> Predicted:
    """What is predicted of a choice: by the DNF's cost function, and by the header of its variant.

    Elements are taken to be of the problem's dtype.

    Raises:
        BadInput: an expression of the header has no value here.
    """
    known, size = launch_names(variant, problem, choice.build.knobs), ITEM_BYTES[problem.dtype]
    dnf = spec.elements(problem)
    read, written, atomics = (evaluate(text, known) for text in (variant.reads, variant.writes, variant.atomics))
    sectors = read * size / SECTOR_BYTES, written * size / SECTOR_BYTES
    return Predicted(dnf.read * size, dnf.written * size, *sectors, atomics)


class Counting(NamedTuple):
    """What came of counting one choice on one problem: `counters`, or in their place `none`, which says why."""

    problem: Problem
    choice: Choice
    counters: Counters | None
    none: NoCounters | None


def counting(problem: Problem, choice: Choice, found: Counters | NoCounters) -> Counting:
    """The record of an outcome."""
    refused = isinstance(found, NoCounters)
    return Counting(problem, choice, None if refused else found, found if refused else None)  # type: ignore[arg-type]
