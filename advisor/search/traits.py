"""What makes two machines alike: a few numbers and words of each, and the distance between two.

Numbers are compared by ratio: twice the CPUs count as much as twice the cache. What one side does not know says
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from advisor.device import is_device
from advisor.records import Machine
from advisor.search.space import cpu_budget

Traits = Mapping[str, float | str]
"""Field -> number above zero, or word."""

VECTORS = ("amx_tile", "avx512f", "avx2", "sve", "asimd")
"""Instruction sets that choose between variants, the strongest of each vendor first."""

WORD = 1.0
"""Distance of two words that differ: as much as a factor of two in a number."""


class Spot(NamedTuple):
    """A machine as far as choices are moved to it: CPUs that can be used at once, last-level caches, traits."""

    cpus: int
    caches: int
    traits: Traits


def spot_of(machine: Machine) -> Spot:
    """The spot of a machine's part in reach; on a device one of each."""
    if is_device(machine.limits_id):
        return Spot(1, 1, _device_traits(machine))
    reach = set(machine.allowed_cpus)
    caches = sum(1 for group in machine.l3_groups if reach & set(group))
    return Spot(cpu_budget(machine), max(1, caches), _traits(machine, max(1, caches)))


def model_of(machine: Machine) -> str:
    """Which silicon it is: machines of one model are one model, whatever part of them is in reach."""
    if is_device(machine.limits_id):
        return str(machine.gpus[0].name)
    return f"{machine.vendor} {machine.model_name}"


def _device_traits(machine: Machine) -> Traits:
    gpu = machine.gpus[0]
    found: dict[str, Any] = {"multiprocessors": gpu.sm_count, "l2": gpu.l2_bytes, "memory": gpu.memory_bytes}
    known = {name: float(value) for name, value in found.items() if value}
    return {**known, **({"capability": gpu.compute_capability} if gpu.compute_capability else {})}


def _traits(machine: Machine, caches: int) -> Traits:
    """Array shape, caches, vendor and vectors; bandwidth, arithmetic and fork-join where a signature has them."""
    found: dict[str, Any] = {
        "cpus": cpu_budget(machine),
        "threads a core": machine.threads_per_core,
        "numa nodes": sum(1 for node in machine.numa_nodes if node.cpus) or None,
        "last-level caches": caches,
        "l2": machine.caches.l2,
        "l3": machine.caches.l3,
    }
    known: dict[str, float | str] = {name: float(value) for name, value in found.items() if value}
    known |= {"vendor": machine.vendor} if machine.vendor else {}
    known |= {"vectors": next((isa for isa in VECTORS if isa in machine.isa), "none")} if machine.isa else {}
    return {**known, **_measured(machine)}


def measured(machine: Machine, part: str) -> list[dict[str, Any]]:
    """The rows of one part of a machine's signature, as its file has them; none without one, or where it is odd.

    Args:
        machine: whose signature stands in its description.
        part: read, fork_join or peak.
    """
    told = dict(machine.extra).get("signature")
    rows = told.get(part) if isinstance(told, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, (list, tuple)) else []


def _measured(machine: Machine) -> dict[str, float | str]:
    """The best rates and the cost of the largest team."""
    try:
        memory = [float(one["gb_per_s"]) for one in measured(machine, "read") if one["level"] == "memory"]
        peaks = [float(one["gflops"]) for one in measured(machine, "peak")]
        widest = max(measured(machine, "fork_join"), key=lambda one: int(one["threads"]), default=None)
        rates: dict[str, float | str] = {"bandwidth": max(memory)} if memory else {}
        rates |= {"arithmetic": max(peaks)} if peaks else {}
        return {**rates, **({"fork-join": float(widest["time"]["p25_ns"])} if widest else {})}
    except (LookupError, TypeError, ValueError):
        return {}


def distance(one: Traits, other: Traits) -> float:
    """Sum over the fields that both know: log2 of the ratio of numbers, `WORD` for words that differ."""
    total = 0.0
    for name in one.keys() & other.keys():
        ours, theirs = one[name], other[name]
        if isinstance(ours, str) or isinstance(theirs, str):
            total += WORD * (ours != theirs)
        elif ours > 0 and theirs > 0:
            total += abs(math.log2(ours / theirs))
    return total
