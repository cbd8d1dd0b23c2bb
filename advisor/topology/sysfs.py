"""The layout of a machine's hardware threads as the kernel's files tell it.

Groups come from sibling lists, not from ids: `core_id` repeats across sockets, clusters and dies, and a package id may
be -1. A file is read for one member of each group only, so 512 CPUs cost about as many reads as there are cores.
Everything takes a root folder. Standard library only, and no `typing` or `re`: the hot path imports this module.

Source: Linux Documentation/admin-guide/cputopology.rst; Documentation/ABI/stable/sysfs-devices-system-cpu and -node.
"""

from __future__ import annotations

import os
from collections import namedtuple

from advisor.topology import cpuinfo
from advisor.topology.files import cpu_set, is_folder, number, numbered, raw, span, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import NamedTuple

    Ids = tuple[int, ...]
    Partition = tuple[Ids, ...]

    class Layout(NamedTuple):  # noqa: D101 (documented below, where it is made)
        cpu: cpuinfo.CpuInfo
        online: Ids
        offline: Ids
        groupings: tuple[tuple[str, Partition], ...]
        nodes: tuple[tuple[int, Ids], ...]
        memory_nodes: int
        caches: tuple[int | None, int | None, int | None]
        warnings: tuple[str, ...]
else:
    Layout = namedtuple("Layout", "cpu online offline groupings nodes memory_nodes caches warnings")
    Layout.__doc__ = """The hardware threads of a machine, limits ignored.

    cpu: what the processor calls itself; online, offline: CPU ids, offline ones are present but not online;
    groupings: (name, groups of online CPU ids), outermost first, empty where the kernel tells nothing;
    nodes: (NUMA node id, its online CPUs, none for a memory-only node); memory_nodes: how many of them have memory;
    caches: bytes of one L1 data, L2 and L3 cache, None where unknown or absent; warnings: sentences.
    """

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
KINDS = ("cpu_core", "cpu_atom", "cpu_lowpower")
"""Devices whose `cpus` file lists the cores of one kind on hybrid x86. Source: Linux arch/x86/events/intel."""

SIBLINGS = {
    "drawer": ("drawer_siblings", "drawer_cpus"),
    "book": ("book_siblings", "book_cpus"),
    "socket": ("core_siblings", "package_cpus"),
    "die": ("die_cpus",),
    "cluster": ("cluster_cpus",),
    "core": ("thread_siblings", "core_cpus"),
}
"""Grouping -> stems of the topology files that hold it (`STEM_list` as a list, `STEM` as a mask)."""


def read(root: str = "/", believed: Iterable[int] = ()) -> Layout:
    """The layout under a root folder.

    Args:
        root: `/`, or a recorded tree holding `proc/` and `sys/`.
        believed: CPU ids in reach of the process. They count as online where the kernel's list names none of them, or
            where there is no list: a CPU that a process may run on is online, whatever a virtualised file says.

    Returns:
        A Layout; what cannot be known is None or absent, with a warning where that matters.
    """
    online, offline, warnings = _cpus(root, tuple(sorted(set(believed))))
    nodes = _nodes(root, online)
    groupings = _groupings(root, online, nodes)
    if not groupings:
        warnings = (*warnings, "the kernel tells nothing of sockets, cores or caches: the CPUs are a flat list")
    return Layout(
        cpuinfo.read(root),
        online,
        offline,
        groupings,
        nodes,
        _memory_nodes(root, nodes),
        _caches(root, online),
        warnings,
    )


def groups(layout: Layout, name: str) -> Partition | None:
    """The groups of a grouping, None where the machine has no such grouping."""
    return dict(layout.groupings).get(name)


# --- which CPUs there are ---


def _cpus(root: str, believed: Ids) -> tuple[Ids, Ids, tuple[str, ...]]:
    """Online ids, offline ids, warnings."""
    folder = os.path.join(root, CPU)
    online = cpu_set(os.path.join(folder, "online")) or _online_by_folder(folder) or believed
    online = online or _online_by_stat(root) or (0,)
    present = cpu_set(os.path.join(folder, "present")) or tuple(numbered(folder, "cpu"))
    warnings: tuple[str, ...] = ()
    if believed and not set(believed) & set(online):
        warnings = (
            f"the process may run on CPUs {span(believed)}, none of which is in the kernel's online list "
            f"{span(online)}; they are believed to be online, since a process runs there",
        )
        online = tuple(sorted({*online, *believed}))
    return online, tuple(sorted(set(present) - set(online))), warnings


def _online_by_folder(folder: str) -> Ids:
    """Without an online list: every cpuN folder, less those whose `online` file says 0 or that lost their topology.

    The kernel hides the topology folder of an offline CPU; cpu0 often has no `online` file.
    """
    ids = numbered(folder, "cpu")
    shown = {cpu for cpu in ids if is_folder(f"{folder}/cpu{cpu}/topology")} or set(ids)
    return tuple(cpu for cpu in ids if cpu in shown and number(f"{folder}/cpu{cpu}/online") != 0)


def _online_by_stat(root: str) -> Ids:
    """Without /sys and without a mask (a recorded tree): the CPUs that the kernel keeps times of."""
    lines = (raw(os.path.join(root, "proc/stat")) or "").splitlines()
    tails = (line.split()[0][3:] for line in lines if line.startswith("cpu"))
    return tuple(sorted(int(tail) for tail in tails if tail.isdigit()))


# --- which belong together ---


def _partition(online: Ids, group_of: Callable[[int], Iterable[int] | None]) -> Partition:
    """Disjoint groups in the order of their lowest id. A CPU that no file speaks of is in no group."""
    seen: set[int] = set()
    live, found = set(online), []
    for cpu in online:
        listed = None if cpu in seen else group_of(cpu)
        if listed is not None:
            group = ({*listed, cpu} & live) - seen
            seen |= group
            found.append(tuple(sorted(group)))
    return tuple(found)


def _by_siblings(root: str, online: Ids, name: str) -> Partition:
    stems = [stem for stem in SIBLINGS[name] if _has_stem(root, online, stem)]

    def group_of(cpu: int) -> Iterable[int] | None:
        folder = os.path.join(root, CPU, f"cpu{cpu}", "topology")
        for stem in stems:
            listed = cpu_set(f"{folder}/{stem}_list", f"{folder}/{stem}")
            if listed:
                return listed
        return None

    return _partition(online, group_of) if stems else ()


def _has_stem(root: str, online: Ids, stem: str) -> bool:
    """Whether the first CPU that has a topology folder has this file: asked once, not once a CPU."""
    for cpu in online:
        folder = os.path.join(root, CPU, f"cpu{cpu}", "topology")
        if is_folder(folder):
            return os.path.exists(f"{folder}/{stem}_list") or os.path.exists(f"{folder}/{stem}")
    return False


def _by_ids(root: str, online: Ids, files: Sequence[str]) -> Partition:
    """Groups of equal ids, for kernels without sibling files. A CPU whose last id is missing or negative is in none."""
    members: dict[tuple[int | None, ...], list[int]] = {}
    for cpu in online:
        ids = tuple(number(os.path.join(root, CPU, f"cpu{cpu}", "topology", name)) for name in files)
        if ids[-1] is not None and ids[-1] >= 0:
            members.setdefault(ids, []).append(cpu)
    return tuple(sorted(tuple(group) for group in members.values()))


def _cores(root: str, online: Ids) -> Partition:
    """Cores with their threads in id order; a CPU that no file speaks of is a core of its own."""
    found = _by_siblings(root, online, "core") or _by_ids(root, online, ("physical_package_id", "die_id", "core_id"))
    told = {cpu for group in found for cpu in group}
    return tuple(sorted([*found, *((cpu,) for cpu in online if cpu not in told)])) if found else ()


def _sockets(root: str, online: Ids, cores: Partition) -> Partition:
    """Sockets, empty where unknown: siblings that say less than the cores do, or no more while the package id is -1."""
    found = _by_siblings(root, online, "socket") or _by_ids(root, online, ("physical_package_id",))
    package = number(os.path.join(root, CPU, f"cpu{online[0]}", "topology/physical_package_id"))
    silent = package is not None and package < 0 and found == cores and len(online) > 1
    return () if silent or len(found) > len(cores) > 0 else found


def _l3(root: str, online: Ids) -> Partition:
    def group_of(cpu: int) -> Iterable[int] | None:
        folder = os.path.join(root, CPU, f"cpu{cpu}", "cache")
        for index in _indexes(folder):
            if number(f"{index}/level") == 3:
                return cpu_set(f"{index}/shared_cpu_list", f"{index}/shared_cpu_map") or None
        return None

    return _partition(online, group_of)


def _indexes(folder: str) -> list[str]:
    """Cache index folders, last level first: the levels ascend with the index."""
    return [f"{folder}/index{i}" for i in reversed(numbered(folder, "index"))]


def _groupings(root: str, online: Ids, nodes: Sequence[tuple[int, Ids]]) -> tuple[tuple[str, Partition], ...]:
    """Every grouping that the kernel tells and that says something; see `_informative` for die and cluster."""
    cores = _cores(root, online)
    found = {name: _by_siblings(root, online, name) for name in ("drawer", "book")}
    found["socket"] = _sockets(root, online, cores)
    found["die"] = _by_siblings(root, online, "die")
    found["numa"] = tuple(sorted({cpus for _, cpus in nodes if cpus}))
    found["l3"] = _l3(root, online)
    found["cluster"] = _by_siblings(root, online, "cluster")
    found["core"] = cores
    for name in ("die", "cluster"):
        if not _informative(name, found):
            found[name] = ()
    return tuple((name, listed) for name, listed in found.items() if listed)


def _informative(name: str, found: dict[str, Partition]) -> bool:
    """Whether a die or cluster level is more than the kernel's placeholder: coarser than cores, equal to no other."""
    others = (listed for other, listed in found.items() if other != name)
    return len(found[name]) < len(found["core"]) and found[name] not in others


# --- memory and caches ---


def _nodes(root: str, online: Ids) -> tuple[tuple[int, Ids], ...]:
    folder, live = os.path.join(root, NODE), set(online)
    found = []
    for node in numbered(folder, "node"):
        listed = cpu_set(f"{folder}/node{node}/cpulist", f"{folder}/node{node}/cpumap") or ()
        found.append((node, tuple(cpu for cpu in listed if cpu in live)))
    return tuple(found)


def _memory_nodes(root: str, nodes: Sequence[tuple[int, Ids]]) -> int:
    listed = cpu_set(os.path.join(root, NODE, "has_memory"))
    return len(nodes) if listed is None else len(listed)


def size_bytes(found: str | None) -> int | None:
    """Bytes of a cache size such as `512K` or `32M`; None where there is none, or it says 0."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if not found:
        return None
    digits = found[:-1] if found[-1] in units else found
    return int(digits) * units.get(found[-1], 1) or None if digits.isdigit() else None


def _caches(root: str, online: Ids) -> tuple[int | None, int | None, int | None]:
    """Bytes of one L1 data, L2 and L3 cache, of the first online CPU that shows any."""
    for cpu in online:
        indexes = _indexes(os.path.join(root, CPU, f"cpu{cpu}", "cache"))
        if indexes:
            sizes = {
                number(f"{index}/level"): size_bytes(text(f"{index}/size"))
                for index in indexes
                if text(f"{index}/type") != "Instruction"
            }
            return sizes.get(1), sizes.get(2), sizes.get(3)
    return None, None, None
