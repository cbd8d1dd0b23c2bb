"""A machine as nested boxes, the model that both drawings (terminal and SVG) are made of.

A box is a group of the array; in it lie boxes or cores; in a core lie its threads: a CPU in reach, one out of reach, or
a hole. With a placement, a thread that was chosen carries the number of its worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from advisor.errors import PlacementError
from advisor.records import Machine
from advisor.topology.array import ABSENT, is_flat, size
from advisor.topology.placement import evaluate


class Thread(NamedTuple):
    """One position of the array. `cpu`: its id, None for a hole; `worker`: its place in the team, None: not chosen."""

    cpu: int | None
    in_reach: bool
    worker: int | None


class Core(NamedTuple):
    """The threads of one core, in order; `kind`: its class on a hybrid machine, else empty."""

    threads: tuple[Thread, ...]
    kind: str


class Box(NamedTuple):
    """A group. `label`: axes and numbers; `note`: what belongs to it; `children`: all boxes, or all cores, or none."""

    label: str
    axis: str
    note: str
    children: tuple[Box | Core, ...]
    cpus: tuple[int, ...]


def boxes(machine: Machine, chosen: Sequence[int] = ()) -> tuple[Box, ...]:
    """The outermost boxes, memory-only nodes last; a box that holds a single box is one with it.

    Args:
        machine: what the probe found.
        chosen: CPU ids of a team, worker 0 first.
    """
    told = _Told(machine, chosen)
    array = machine.array
    outer = 0 if is_flat(array) else max(0, len(array.axes) - 2)
    if outer:
        found = tuple(_groups(told, array.cpus, 0, outer))
    else:
        cores = tuple(_cores(told, array.cpus))
        found = (Box("no groups known" if is_flat(array) else "cores", "", "", cores, _present(array.cpus)),)
    only = (node for node in machine.numa_nodes if not node.cpus)
    memory = tuple(Box(f"node {node.id}, no CPUs", "numa", told.memory[node.id], (), ()) for node in only)
    return (*found, *memory)


class _Told:
    """What the recursion looks up: who is in reach, chosen, of which kind; node ids and sizes."""

    def __init__(self, machine: Machine, chosen: Sequence[int]) -> None:
        self.array = machine.array
        self.reach = frozenset(machine.allowed_cpus)
        self.worker: Mapping[int, int] = {cpu: worker for worker, cpu in enumerate(chosen)}
        kinds = machine.core_classes if len(machine.core_classes) > 1 else ()
        self.kind = {cpu: kind.name for kind in kinds for cpu in kind.cpus}
        self.nodes = {node.cpus: node.id for node in reversed(machine.numa_nodes) if node.cpus}
        self.memory = {
            node.id: "" if node.memory_bytes is None else f"{bytes_text(node.memory_bytes)} memory"
            for node in machine.numa_nodes
        }
        self.l3 = "" if machine.caches.l3 is None else f"{bytes_text(machine.caches.l3)} L3"


def _groups(told: _Told, cpus: Sequence[int], depth: int, outer: int) -> Iterator[Box]:
    """The groups of one axis that have a thread at all."""
    array = told.array
    step = size(array.shape[depth + 1 :])
    for index in range(array.shape[depth]):
        part = cpus[index * step : (index + 1) * step]
        if not _present(part):
            continue
        inner: tuple[Box | Core, ...] = tuple(
            _groups(told, part, depth + 1, outer) if depth + 1 < outer else _cores(told, part)
        )
        box = Box(*_named(told, array.axes[depth], index, part), inner, _present(part))
        only = inner[0]
        if len(inner) == 1 and isinstance(only, Box):
            note = ", ".join(text for text in (box.note, only.note) if text)
            box = box._replace(label=f"{box.label} / {only.label}", note=note, children=only.children)
        yield box


def _named(told: _Told, axis: str, index: int, part: Sequence[int]) -> tuple[str, str, str]:
    """Label, axis and note of a group; a NUMA node goes by the kernel's number where that is another."""
    if axis == "numa":
        node = told.nodes.get(tuple(sorted(_present(part))), index)
        return (f"numa {index}" if node == index else f"numa {index} (node {node})"), axis, told.memory.get(node, "")
    return f"{axis} {index}", axis, told.l3 if axis == "l3" else ""


def _cores(told: _Told, cpus: Sequence[int]) -> Iterator[Core]:
    """The cores of an innermost group; those that are all holes at its end stay, as holes."""
    smt = 1 if is_flat(told.array) else told.array.shape[-1]
    for start in range(0, len(cpus), smt):
        ids = cpus[start : start + smt]
        threads = tuple(
            Thread(None, False, None) if cpu == ABSENT else Thread(cpu, cpu in told.reach, told.worker.get(cpu))
            for cpu in ids
        )
        yield Core(threads, next((told.kind[cpu] for cpu in ids if cpu in told.kind), ""))


def tail(cores: Sequence[Core]) -> tuple[list[Core], int]:
    """The cores up to the last that is there, and how many holes follow it."""
    there = list(cores)
    while there and all(thread.cpu is None for thread in there[-1].threads):
        there.pop()
    return there, len(cores) - len(there)


def _present(cpus: Sequence[int]) -> tuple[int, ...]:
    return tuple(cpu for cpu in cpus if cpu != ABSENT)


def team(machine: Machine, expression: str, threads: int | None) -> tuple[int, ...]:
    """The CPUs of a placement on this machine, worker 0 first.

    Raises:
        PlacementError: the expression makes no sense here, or does not pin.
    """
    known = {**dict(machine.groupings), **classes(machine)}
    cpus = evaluate(expression, machine.array, machine.allowed_cpus, threads, known)
    if cpus is None:
        raise PlacementError("only a placement that pins can be drawn", got=expression)
    return cpus


def classes(machine: Machine) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The grouping `class` (kinds of cores, strongest first) of a machine with several kinds, else none."""
    kinds = machine.core_classes
    return {"class": tuple(kind.cpus for kind in kinds)} if len(kinds) > 1 else {}


def bytes_text(count: float) -> str:
    """Bytes with a binary unit: 32 KiB, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.4g} {unit}"
