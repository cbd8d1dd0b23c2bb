"""Was the machine quiet while something was measured: steal, other processes, delayed samples, load."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from advisor.records import Measurement
from advisor.signature.records import Quiet

STEAL, OTHERS, DELAYED = 0.01, 0.05, 0.10
"""Above these shares a machine is not quiet: 1 % of steal hides a 1 % difference, a twentieth of all CPUs' time is a
busy core of twenty, and one sample in ten is more than the 25th percentile shrugs off with nine of them."""


class Stat(NamedTuple):
    """Seconds since the start, all CPUs together: what ran, what was stolen, all; and what this program used."""

    busy: float
    stolen: float
    total: float
    own: float


def stat(root: str = "/") -> Stat | None:
    """The counters now, None where they are not told.

    Children count once they have been waited for. Source: proc(5), /proc/stat: user nice system idle iowait irq softirq
    steal; guest time is in user already.
    """
    try:
        with open(os.path.join(root, "proc/stat"), encoding="utf-8") as file:
            words = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    if len(words) < 8:
        return None
    tick, times = os.sysconf("SC_CLK_TCK"), os.times()
    idle, stolen = words[3] + words[4], words[7]
    return Stat((sum(words) - idle - stolen) / tick, stolen / tick, sum(words) / tick, sum(times[:4]))


def load() -> float | None:
    """Mean number of runnable processes over the last minute."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def judge(before: Stat | None, after: Stat | None, measured: Iterable[Measurement], load_1min: float | None) -> Quiet:
    """The verdict on a stretch of measuring.

    Args:
        before: counters at its start.
        after: counters at its end, when all children have been waited for.
        measured: what was measured in it.
        load_1min: load before its start.
    """
    steal = others = None
    if before is not None and after is not None and after.total > before.total:
        span = after.total - before.total
        steal = max(0.0, after.stolen - before.stolen) / span
        others = max(0.0, (after.busy - before.busy) - (after.own - before.own)) / span
    delayed = _delayed(measured)
    told = ((steal, STEAL, "stolen by the hypervisor"), (others, OTHERS, "used by other processes"))
    reasons = [f"{share:.1%} of the CPUs' time was {what}" for share, most, what in told if share and share > most]
    if delayed > DELAYED:
        reasons.append(f"in {delayed:.0%} of the samples a thread waited for a CPU")
    return Quiet(not reasons, _rounded(steal), _rounded(others), round(delayed, 4), load_1min, tuple(reasons))


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _delayed(measured: Iterable[Measurement]) -> float:
    taken = delayed = 0
    for one in measured:
        conditions: dict[str, Any] = dict(one.conditions)
        taken += len(one.samples_ns) + conditions.get("rejected", 0)
        delayed += conditions.get("rejected", 0) + conditions.get("kept_noisy", 0)
    return delayed / taken if taken else 0.0
