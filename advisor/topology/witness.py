"""Second witnesses: what other programs say of a machine, compared with what the kernel's files gave.

A disagreement is a warning that says which was believed and why; nothing a witness says changes the description.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Machine
from advisor.topology import lscpu
from advisor.topology.files import span
from advisor.words import many

_WHY = {
    "core": "the kernel's sibling lists, since core ids repeat",
    "socket": "the kernel's package siblings",
    "numa": "the node folders",
    "l3": "the kernel's list of who shares each cache",
}
_COLUMN = {"numa": "node"}
_GAP = 8


def warnings(machine: Machine, said: lscpu.Said | None) -> tuple[str, ...]:
    """What lscpu and psutil say otherwise than `machine`; for the machine at hand only."""
    import psutil

    return (*lscpu_notes(said, machine), *core_count_notes(psutil.cpu_count(logical=False), machine))


def lscpu_notes(said: lscpu.Said | None, machine: Machine) -> tuple[str, ...]:
    """Sentences on what lscpu says otherwise; none where it is silent.

    Args:
        said: what `lscpu.listen` heard.
        machine: the description to compare with.
    """
    if said is None:
        return ()
    return (*said.notes, *_cpus(said, machine), *_groups(said, machine), *_counts(said, machine), *_size(said, machine))


def _cpus(said: lscpu.Said, machine: Machine) -> tuple[str, ...]:
    told = lscpu.online(said)
    if told is None or told == machine.online_cpus:
        return ()
    return (
        f"lscpu lists {many(len(told), 'online CPU')} ({_cut(span(told))}), advisor {len(machine.online_cpus)} "
        f"({_cut(span(machine.online_cpus))}); believed: the kernel's online list",
    )


def _groups(said: lscpu.Said, machine: Machine) -> tuple[str, ...]:
    """Groupings of its table that part the same CPUs in another way."""
    ours = dict(machine.groupings)
    ours.setdefault("core", tuple((cpu,) for cpu in machine.online_cpus))
    found = []
    for name, why in _WHY.items():
        told, known = said.groups.get(_COLUMN.get(name, name), ()), ours.get(name, ())
        if not known or not _same_cpus(told, known) or _sets(told) == _sets(known):
            continue
        odd = min(_sets(told) - _sets(known), key=min)
        found.append(
            f"lscpu has {many(len(told), f'{name} group')}, among them CPUs {_cut(span(odd))}, "
            f"advisor {len(known)} others; believed: {why}"
        )
    return tuple(found)


def _sets(groups: Sequence[Sequence[int]]) -> set[frozenset[int]]:
    return {frozenset(group) for group in groups}


def _same_cpus(told: Sequence[Sequence[int]], known: Sequence[Sequence[int]]) -> bool:
    """Whether both part the same CPUs: a table that leaves out CPUs, or nodes that overlap, cannot be compared."""
    return sorted(cpu for group in told for cpu in group) == sorted(cpu for group in known for cpu in group)


def _counts(said: lscpu.Said, machine: Machine) -> tuple[str, ...]:
    """Counts of its summary: those that stand alone where there is no table, and their product."""
    found = []
    threads, cores, sockets = (
        lscpu.count(said, label) for label in ("thread(s) per core", "core(s) per socket", "socket(s)")
    )
    alone = (
        ("threads a core", threads, machine.threads_per_core, _WHY["core"]),
        ("sockets", sockets, machine.sockets, _WHY["socket"]),
    )
    for what, told, ours, why in alone if said.cpus is None else ():
        if told is not None and ours is not None and told != ours:
            found.append(f"lscpu's summary says {told} {what}, advisor {ours}; believed: {why}")
    if threads and cores and sockets and threads * cores * sockets != len(machine.online_cpus):
        found.append(
            f"lscpu's summary says {many(sockets, 'socket')} x {many(cores, 'core')} x {many(threads, 'thread')} = "
            f"{many(threads * cores * sockets, 'CPU')}, {len(machine.online_cpus)} are online; "
            "its three figures are not used: they suppose that all cores are alike and online"
        )
    return tuple(found)


def _size(said: lscpu.Said, machine: Machine) -> tuple[str, ...]:
    told, ours = lscpu.cache_bytes(said, "l3"), machine.caches.l3
    if told is None or ours is None or told == ours or len(machine.core_classes) > 1:
        return ()
    return (f"lscpu says {told} bytes an L3, advisor {ours}; believed: the kernel's size file of one cache",)


def _cut(text: str) -> str:
    """A CPU list that fits in a sentence."""
    parts = text.split(",")
    return text if len(parts) <= _GAP else ",".join([*parts[:_GAP], "..."])


def core_count_notes(told: int | None, machine: Machine) -> tuple[str, ...]:
    """A sentence where psutil's count of physical cores is impossible or another one; unknown is no disagreement.

    Args:
        told: what `psutil.cpu_count(logical=False)` gave. It is None on some platforms, counts one socket on others.
        machine: the description to compare with.
    """
    if told is None or told == machine.cores:
        return ()
    if not 1 <= told <= len(machine.online_cpus):
        where = f"{many(told, 'core')} on {many(len(machine.online_cpus), 'CPU')}"
        return (f"psutil counts {where}, which cannot be; it is ignored",)
    return (f"psutil counts {many(told, 'core')}, advisor {machine.cores}; believed: the kernel's sibling lists",)
