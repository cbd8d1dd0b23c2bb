"""Second witnesses: what other programs say of the machine at hand, compared with what the kernel's files gave.

A disagreement is a warning that says which was believed and why; nothing a witness says changes the description.
"""

from __future__ import annotations

import shutil
from typing import Any

from advisor.codec import loads
from advisor.errors import BadInput
from advisor.records import Machine
from advisor.topology.child import ask

LIMIT_S = 5.0


def warnings(machine: Machine) -> tuple[str, ...]:
    """What lscpu and psutil say otherwise than `machine`; for the machine at hand only."""
    import psutil

    return (*_lscpu(machine), *core_count_notes(psutil.cpu_count(logical=False), machine))


def _lscpu(machine: Machine) -> tuple[str, ...]:
    program = shutil.which("lscpu")
    answer = ask([program, "-b", "-J", "-e=CPU,CORE,SOCKET,NODE"], LIMIT_S) if program else None
    if answer is None:
        return ()
    try:
        told = loads(answer, "lscpu")
    except BadInput:
        return ()
    rows = told.get("cpus") if isinstance(told, dict) else None
    return lscpu_notes(rows, machine) if isinstance(rows, list) else ()


def lscpu_notes(rows: list[dict[str, Any]], machine: Machine) -> tuple[str, ...]:
    """Sentences on what lscpu's table says otherwise.

    Args:
        rows: one object an online CPU with `cpu`, `core`, `socket`, `node`; text or numbers, None or `-` for unknown.
        machine: the description to compare with.
    """
    said = {key: {row.get(key) for row in rows} - {None, "-", ""} for key in ("cpu", "core", "socket", "node")}
    with_cpus = sum(1 for node in machine.numa_nodes if node.cpus)
    counted = (
        ("online CPUs", "cpu", len(machine.online_cpus), "the kernel's online list"),
        ("cores", "core", machine.cores, "the kernel's sibling lists, since core ids repeat"),
        ("sockets", "socket", machine.sockets, "the kernel's package siblings"),
        ("NUMA nodes with CPUs", "node", with_cpus or None, "the node folders"),
    )
    return tuple(
        f"lscpu counts {len(said[key])} {what}, advisor {ours}; believed: {believed}"
        for what, key, ours, believed in counted
        if said[key] and ours is not None and len(said[key]) != ours
    )


def core_count_notes(told: int | None, machine: Machine) -> tuple[str, ...]:
    """A sentence where psutil's count of physical cores is impossible or another one; unknown is no disagreement.

    Args:
        told: what `psutil.cpu_count(logical=False)` gave. It is None on some platforms, counts one socket on others.
        machine: the description to compare with.
    """
    if told is None or told == machine.cores:
        return ()
    if not 1 <= told <= len(machine.online_cpus):
        return (f"psutil counts {told} cores on {len(machine.online_cpus)} CPUs, which cannot be; it is ignored",)
    return (f"psutil counts {told} cores, advisor {machine.cores}; believed: the kernel's sibling lists",)
