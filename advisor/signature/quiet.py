"""Was the machine quiet while something was measured: steal, other processes, delayed samples, load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from advisor.records import Measurement
from advisor.search.others import OTHERS, STEAL, Stat
from advisor.signature.records import Quiet

DELAYED = 0.10
"""Above this share a machine is not quiet: one sample in ten is more than the 25th percentile shrugs off with nine."""


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
