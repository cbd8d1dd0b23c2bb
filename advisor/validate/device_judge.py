"""Judges of a device's measurements: steps of the chain, where they pass 1, what counters say of two variants. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from advisor.kernels.gpu.counts import Kernel
from advisor.validate import judge
from advisor.validate.device_records import Count, Crossing, Device, Grid, Step
from advisor.validate.records import Estimate, Growth, Series
from advisor.validate.roles import STEPS, Role, pairs_of
from advisor.validate.verdicts import APART
from advisor.words import many


class DeviceEvidence(NamedTuple):
    """All that findings on a device may rest on."""

    device: Device
    series: tuple[Series, ...]
    growth: tuple[Growth, ...]
    grids: tuple[Grid, ...]
    steps: tuple[Step, ...]
    crossings: tuple[Crossing, ...]
    counts: tuple[Count, ...]
    waits: tuple[Count, ...]
    uncounted: str
    cold_start_s: tuple[float, ...]


# --- times ---


def steps(series: Sequence[Series]) -> tuple[Step, ...]:
    """Every step of the chain in every mapping and form, at each n where new and old ran."""
    known = {(s.problem.kernel, s.variant, s.problem.n): s for s in judge.good(series)}
    sizes = sorted({n for _, _, n in known})
    found = []
    for step in STEPS:
        for new, old in pairs_of(step):
            for n in sizes:
                over, under = (known.get((role.kernel, role.name, n)) for role in (new, old))
                if over is not None and under is not None:
                    ratio = judge.ratio(over, under)
                    found.append(Step(step.key, new.mapping, new.form, n, new.name, old.name, ratio))
    return tuple(found)


def line(found: Iterable[Step], key: str, mapping: str, form: str) -> list[Step]:
    """One step in one mapping and form, ascending in n."""
    own = [one for one in found if (one.step, one.mapping, one.form) == (key, mapping, form)]
    return sorted(own, key=lambda one: one.n)


def crossings(found: Sequence[Step]) -> tuple[Crossing, ...]:
    """Where ratios pass 1 between two sizes at which new and old are told apart."""
    passed = []
    for (key, mapping, form), own in groupby(found, lambda one: (one.step, one.mapping, one.form)):
        for low, high in pairwise(own):
            n = passing((low.n, low.ratio.value), (high.n, high.ratio.value))
            if n is not None and not any(1 / APART <= one.ratio.value <= APART for one in (low, high)):
                passed.append(Crossing(key, mapping, form, n, high.ratio.value > 1))
    return tuple(passed)


def passing(low: tuple[int, float], high: tuple[int, float]) -> float | None:
    """The n at which a ratio is 1 between two (n, ratio), by a straight line in their logs; None where it does not
    pass."""
    (a, before), (b, after) = low, high
    if (before > 1) == (after > 1):
        return None
    share = math.log(before) / (math.log(before) - math.log(after))
    return a * math.exp(share * math.log(b / a))


def series_of(evidence: DeviceEvidence, role: Role, n: int) -> Series | None:
    """The samples of a role at one n."""
    own = judge.good(evidence.series, role.kernel)
    return next((s for s in own if (s.variant, s.problem.n) == (role.name, n)), None)


def over(evidence: DeviceEvidence, new: Role, old: Role, n: int) -> Estimate | None:
    """Time over time at one n, of one race where both are of one kernel."""
    above, below = (series_of(evidence, role, n) for role in (new, old))
    if above is None or below is None:
        return None
    return judge.ratio(above, below) if new.kernel == old.kernel else judge.ratio_apart(above, below)


# --- counters ---


def counted(evidence: DeviceEvidence, role: Role, n: int | None = None) -> Count | None:
    """What was counted of a role, at one n or at the largest."""
    own = [c for c in evidence.counts if (c.kernel, c.variant) == (role.kernel, role.name) and c.call is not None]
    return max((c for c in own if n in (None, c.n)), key=lambda c: c.n, default=None)


def moved_bytes(call: Kernel | None) -> float | None:
    """Bytes between L2 and memory, both ways."""
    if call is None or call.dram_read_bytes is None or call.dram_written_bytes is None:
        return None
    return call.dram_read_bytes + call.dram_written_bytes


def atomics(call: Kernel | None) -> float | None:
    """Reductions that warps executed."""
    return None if call is None else call.global_reductions


def moved_ratio(count: Count | None) -> float | None:
    """Bytes that were moved over those that the DNF's cost function predicts."""
    found = moved_bytes(count.call) if count else None
    if found is None or count is None or count.predicted is None:
        return None
    return found / (count.predicted.dram_read_bytes + count.predicted.dram_written_bytes)


def quantity(value: float | None, unit: str = "") -> str:
    """A count in the thousands that read best, three significant digits."""
    if value is None:
        return "-"
    prefix, size = next(((p, s) for p, s in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if abs(value) >= s), ("", 1.0))
    return " ".join(filter(None, [f"{value / size:.3g}", f"{prefix}{unit}"]))


Told = Callable[[Kernel], float | None]

MECHANISM: tuple[tuple[str, Told, Callable[[float | None], str]], ...] = (
    ("from and to memory", moved_bytes, lambda value: quantity(value, "B")),
    ("reductions", atomics, quantity),
    ("sectors of the L2", lambda k: _sum(k.l2_read_sectors, k.l2_written_sectors), quantity),
    ("bytes used of a sector read", lambda k: k.read_sector_bytes, quantity),
    ("of one written", lambda k: k.written_sector_bytes, quantity),
    ("occupancy", lambda k: k.achieved_occupancy, lambda value: "-" if value is None else f"{value:.2f}"),
)
"""What is told of two variants, and how."""


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def mechanism(evidence: DeviceEvidence, new: Role, old: Role) -> str:
    """What counters say of the new and the old at the largest n where both were counted; why they say nothing."""
    told = [_told(evidence.counts, new, old), _told(evidence.waits, new, old)]
    known = [words for words in told if words]
    return "; ".join(known) or f"no counters: {evidence.uncounted or 'not both were counted'}"


def _told(counts: Sequence[Count], new: Role, old: Role) -> str:
    """The figures of both at the largest n, empty where there are none."""
    known = {(c.kernel, c.variant, c.n): c.call for c in counts if c.call is not None}
    for n in sorted({n for _, _, n in known}, reverse=True):
        both = [known.get((role.kernel, role.name, n)) for role in (new, old)]
        calls = [call for call in both if call is not None]
        if len(calls) == len(both):
            return f"counted at n={n}, new / old: {beside(calls)}"
    return ""


def waiting(evidence: DeviceEvidence, role: Role) -> Count | None:
    """What was counted of a role's sectors and waits."""
    own = [c for c in evidence.waits if (c.kernel, c.variant) == (role.kernel, role.name) and c.call is not None]
    return own[0] if own else None


def beside(calls: Sequence[Kernel]) -> str:
    """The figures of some calls, side by side."""
    told = []
    for label, of, words in MECHANISM:
        values = [of(call) for call in calls]
        if any(value is not None for value in values):
            told.append(f"{label} {' / '.join(words(value) for value in values)}")
    if any(call.stalls for call in calls):
        told.append(f"longest waits for {' / '.join(_longest_wait(call) for call in calls)}")
    return ", ".join(told)


def _longest_wait(call: Kernel) -> str:
    """What most warps of the longest kernel waited for, and how many did whenever one was issued."""
    if not call.stalls:
        return "-"
    reason, warps = max(call.stalls, key=lambda stall: stall[1])
    return f"{reason} ({warps:.1f} warps)"


def grid_words(evidence: DeviceEvidence, role: Role, n: int) -> str:
    """How many blocks a role's largest kernel has at one n, beside the multiprocessors."""
    own = [g for g in evidence.grids if (g.kernel, g.variant, g.n) == (role.kernel, role.name, n)]
    count = evidence.device.sm_count
    if not own or not own[0].launches or not count:
        return ""
    blocks, threads = max(own[0].launches)
    free = ": fewer, so that more rows find free ones and time grows with n" if blocks < count else ""
    return f"{many(blocks, 'block')} of {many(threads, 'thread')} on {many(count, 'multiprocessor')}{free}"
