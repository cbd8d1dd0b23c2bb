"""What the probe tells beyond the layout: NUMA memory and distances, core classes. Not on the hot path."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence

from advisor.records import CoreClass, NumaNode
from advisor.topology import foreign
from advisor.topology.files import cpu_set, number, raw, text
from advisor.topology.sysfs import CPU, KINDS, NODE, Layout

STRONGEST = 1024
"""Capacity of the strongest core class, as in the kernel's `cpu_capacity`."""

SAME_CLASS = 0.9
"""Maximum frequencies within a tenth of the fastest of a class are that class: favoured cores of one kind differ by up
to 8 %, kinds by 20 % or more. Source: hwloc's cpukinds ranking allows the same tenth."""

_MIDR = re.compile("(0x)?[0-9a-fA-F]{8,16}")


def numa_nodes(root: str, layout: Layout) -> tuple[NumaNode, ...]:
    """The NUMA nodes with memory and distances; none where the kernel has no node folder."""
    found = []
    for node, cpus in layout.nodes:
        folder = os.path.join(root, NODE, f"node{node}")
        words = (text(f"{folder}/distance") or "").split()
        distances = tuple(int(word) for word in words) if all(word.isdigit() for word in words) else ()
        found.append(NumaNode(node, cpus, _memory_bytes(f"{folder}/meminfo"), distances))
    return tuple(found)


def _memory_bytes(path: str) -> int | None:
    """MemTotal of a meminfo file, which counts in kB of 1024 bytes."""
    for line in (raw(path) or "").splitlines():
        name, _, value = line.partition("MemTotal:")
        if value and (not name or name.startswith("Node")):
            digits = value.split()[0]
            return int(digits) * 1024 if digits.isdigit() else None
    return None


def memory_total(root: str) -> int | None:
    """Bytes of memory that the whole machine reports."""
    return _memory_bytes(os.path.join(root, "proc/meminfo"))


def node_warnings(layout: Layout, nodes: Sequence[NumaNode] = ()) -> tuple[str, ...]:
    """Sentences on NUMA nodes that cannot be an axis: overlapping ones, CPUs that belong to none; and odd distances."""
    members = [cpu for _, cpus in layout.nodes for cpu in cpus]
    found = []
    if len(members) != len(set(members)):
        found.append("NUMA nodes overlap: the kernel's tables are wrong, and nodes say nothing about nearness here")
    if members and set(layout.online) - set(members):
        found.append("some online CPUs belong to no NUMA node: numa is a grouping here, not an axis")
    odd = [str(node.id) for node in nodes if node.distances and len(node.distances) != len(nodes)]
    if odd:
        found.append(f"NUMA nodes {', '.join(odd)} tell distances to more or fewer nodes than there are: not used")
    return tuple(found)


# --- core classes ---


def core_classes(root: str, layout: Layout) -> tuple[CoreClass, ...]:
    """Kinds of cores, strongest first: by the kernel's lists, by ARM part, by capacity, by frequency.

    Returns:
        One class `uniform` where all CPUs look alike, one class `unknown` where nothing tells.
    """
    online = layout.online
    if root == "/" and foreign.is_here():
        return _foreign(online)
    named = _listed(root, online)
    listed = sum(map(len, named.values()))
    if listed == len(online):
        return _ranked(named, _strength(root, online))
    for keys in (_parts(root, online), _per_cpu(root, online, "cpu_capacity"), _frequencies(root, online)):
        kinds: dict[str, list[int]] = {}
        for cpu, key in keys.items():
            kinds.setdefault(str(key), []).append(cpu)
        if len(kinds) > 1 and len(keys) == len(online):
            return _ranked(kinds, _strength(root, online))
    if named:  # cores of a kind that this kernel, or this program, has no name for
        rest = set(online) - {cpu for cpus in named.values() for cpu in cpus}
        return _ranked({**named, "other": sorted(rest)}, {})
    alike = bool(_strength(root, online)) or bool(_parts(root, online))
    return (CoreClass("uniform", online, STRONGEST) if alike else CoreClass("unknown", online, None),)


def _foreign(online: Sequence[int]) -> tuple[CoreClass, ...]:
    """Kinds as macOS tells them, numbered in their order: nothing is pinned there, so that only the counts matter."""
    counts = foreign.kinds() if sys.platform == "darwin" else ()
    if len(counts) < 2 or sum(counts) != len(online):
        return (CoreClass("unknown", tuple(online), None),)
    starts = [sum(counts[:level]) for level in range(len(counts))]
    return tuple(
        CoreClass(f"perflevel{level}", tuple(online[start : start + count]), None)
        for level, (start, count) in enumerate(zip(starts, counts, strict=True))
    )


def _listed(root: str, online: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for kind in KINDS:
        listed = set(cpu_set(os.path.join(root, "sys/devices", kind, "cpus")) or ())
        if listed & set(online):
            found[kind] = [cpu for cpu in online if cpu in listed]
    return found


def _per_cpu(root: str, online: Sequence[int], file: str) -> dict[int, int]:
    """CPU -> number in a file of its folder. Nothing where the first CPU has none: it is not asked for 512 times."""
    if number(os.path.join(root, CPU, f"cpu{online[0]}", file)) is None:
        return {}
    values = ((cpu, number(os.path.join(root, CPU, f"cpu{cpu}", file))) for cpu in online)
    return {cpu: value for cpu, value in values if value}


def _parts(root: str, online: Sequence[int]) -> dict[int, str]:
    """CPU -> implementer and part of an ARM core, from its identification register, else from /proc/cpuinfo."""
    found = {}
    for cpu in online:
        register = text(os.path.join(root, CPU, f"cpu{cpu}", "regs/identification/midr_el1")) or ""
        if _MIDR.fullmatch(register):
            midr = int(register, 16)
            found[cpu] = f"0x{midr >> 24 & 0xFF:02x}-0x{midr >> 4 & 0xFFF:03x}"
    return found or _cpuinfo_parts(root, online)


def _cpuinfo_parts(root: str, online: Sequence[int]) -> dict[int, str]:
    """The same from /proc/cpuinfo, read whole only where its head speaks of parts (there it is cheap to make)."""
    path, found, cpu, implementer = os.path.join(root, "proc/cpuinfo"), {}, -1, ""
    if "CPU part" not in (raw(path, 4096) or ""):
        return {}
    for line in (raw(path) or "").splitlines():
        key, _, value = (word.strip() for word in line.partition(":"))
        if key == "processor" and value.isdigit():
            cpu = int(value)
        elif key == "CPU implementer":
            implementer = value
        elif key == "CPU part" and cpu in online:
            found[cpu] = f"{implementer}-{value}"
    return found


def _frequencies(root: str, online: Sequence[int]) -> dict[int, str]:
    """CPU -> its class by base frequency, else by maximum frequency with those within a tenth counted as one."""
    base = _per_cpu(root, online, "cpufreq/base_frequency")
    top = _per_cpu(root, online, "cpufreq/cpuinfo_max_freq")
    found, head = {}, 0
    for khz, cpu in sorted(((khz, cpu) for cpu, khz in (base or top).items()), reverse=True):
        if khz < head * SAME_CLASS or not head:
            head = khz
        found[cpu] = f"{head / 1e6:g}GHz"
    return {cpu: found[cpu] for cpu in sorted(found)}


def _strength(root: str, online: Sequence[int]) -> dict[int, int]:
    """CPU -> something that grows with its speed: the kernel's capacity, else the maximum frequency."""
    tried: tuple[Callable[[], dict[int, int]], ...] = (
        lambda: _per_cpu(root, online, "cpu_capacity"),
        lambda: _per_cpu(root, online, "cpufreq/cpuinfo_max_freq"),
    )
    return next((found for ask in tried if len(found := ask()) == len(online)), {})


def _part_number(name: str) -> int:
    """What ranks ARM's own cores where nothing else does: in every design the stronger core has the higher number.

    Source: part numbers in Linux arch/arm64/include/asm/cputype.h; A53 + A73, A55 + A76, A510 + A710 + X2 and others.
    """
    implementer, _, part = name.partition("-")
    return int(part, 16) if implementer == "0x41" and part.startswith("0x") else 0


def _ranked(kinds: dict[str, list[int]], strength: dict[int, int]) -> tuple[CoreClass, ...]:
    top = max(strength.values(), default=0)
    best = {name: max((strength[cpu] for cpu in cpus if cpu in strength), default=0) for name, cpus in kinds.items()}
    order = sorted(kinds, key=lambda name: (-best[name], -_part_number(name)))  # else as they came
    return tuple(
        CoreClass(name, tuple(kinds[name]), round(STRONGEST * best[name] / top) if top else None) for name in order
    )
