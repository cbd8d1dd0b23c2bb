"""What makes two machines alike: a few numbers and words of each, and the distance between two.

Numbers are compared by ratio: twice the CPUs count as much as twice the cache. What one side does not know says
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from advisor.device import is_device
from advisor.errors import AdvisorError
from advisor.records import Machine
from advisor.search.space import cpu_budget
from advisor.signature.keep import signature_of
from advisor.signature.records import Signature

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
    signature = _signature(machine)
    return known if signature is None else {**known, **_measured(signature)}


def _signature(machine: Machine) -> Signature | None:
    try:
        return signature_of(machine)
    except AdvisorError:
        return None


def _measured(found: Signature) -> dict[str, float | str]:
    """The best rates and the cost of the largest team."""
    memory = [one.gb_per_s for one in found.read if one.level == "memory"]
    widest = max(found.fork_join, key=lambda one: one.threads, default=None)
    rates: dict[str, float | str] = {"bandwidth": max(memory)} if memory else {}
    rates |= {"arithmetic": max(one.gflops for one in found.peak)} if found.peak else {}
    return {**rates, **({"fork-join": widest.time.p25_ns} if widest else {})}


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
