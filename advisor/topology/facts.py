"""What the pictures say in words: what a machine is, its limits, caches, memory, GPUs and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Gpu, Machine
from advisor.topology.array import size
from advisor.topology.boxes import bytes_text
from advisor.topology.files import span
from advisor.topology.limits import Limits, budget
from advisor.words import many

WIDTH = 80


def head(machine: Machine) -> list[str]:
    """What the machine is called, and its array."""
    name = machine.model_name or f"{machine.vendor or 'unnamed'} CPU"
    sockets = "sockets unknown" if machine.sockets is None else many(machine.sockets, "socket")
    counts = f"{many(machine.cores, 'core')}, {many(len(machine.online_cpus), 'CPU')} online"
    shape = " x ".join(f"{n} {axis}" for axis, n in zip(machine.array.axes, machine.array.shape, strict=True))
    holes = size(machine.array.shape) - len(machine.online_cpus)
    return [
        *wrap("", f"{name} ({machine.architecture or 'architecture unknown'}): {sockets}, {counts}"),
        *wrap("", f"array: {shape}" + (f", {many(holes, 'hole')}" if holes else "")),
    ]


def facts(machine: Machine) -> list[str]:
    """One line (or a few) each: limits, caches, memory, kinds of cores, GPUs, compilers, ids, warnings."""
    compilers = dict(machine.environment).get("compilers", ())
    openmp = dict(machine.environment).get("openmp", ())
    told = [
        ("limits", _limits(machine)),
        ("caches", _caches(machine)),
        ("memory", _memory(machine)),
        ("cores", _classes(machine)),
        *(("gpu", _gpu(gpu)) for gpu in machine.gpus),
        *(() if machine.gpus else (("gpu", "none that answers"),)),
        ("build", ", ".join([*compilers, *openmp]) or "compilers not looked for, or none"),
        ("ids", f"hardware {machine.hardware_id}, limits {machine.limits_id}"),
        *(("warning", warning) for warning in machine.warnings),
    ]
    return [line for name, fact in told if fact for line in wrap(f"{name:<9}", fact)]


def team_line(chosen: Sequence[int]) -> list[str]:
    """The chosen CPUs in order, as a line."""
    words = ",".join(map(str, chosen))
    return wrap(f"{'team':<9}", f"{many(len(chosen), 'thread')} on CPUs {words}") if chosen else []


def _limits(machine: Machine) -> str:
    reach, online = len(machine.allowed_cpus), len(machine.online_cpus)
    limits = Limits(machine.allowed_cpus, machine.allowed_mems, machine.cpu_quota, machine.memory_limit_bytes, ())
    quota = "no CPU quota" if machine.cpu_quota is None else f"quota {many(machine.cpu_quota, 'CPU')}"
    memory = "" if machine.memory_limit_bytes is None else f"; memory limit {bytes_text(machine.memory_limit_bytes)}"
    where = (
        "all CPUs in reach" if reach == online else f"CPUs {span(machine.allowed_cpus)} in reach ({reach} of {online})"
    )
    offline = f"; offline {span(machine.offline_cpus)}" if machine.offline_cpus else ""
    return f"{where}; {quota}; budget {budget(limits, online)}{memory}{offline}"


def _caches(machine: Machine) -> str:
    named = (("L1d", machine.caches.l1d), ("L2", machine.caches.l2), ("L3", machine.caches.l3))
    known = [f"{name} {bytes_text(found)}" for name, found in named if found is not None]
    groups = f" ({many(len(machine.l3_groups), 'L3 group')})" if machine.l3_groups else ""
    return (", ".join(known) or "sizes unknown") + groups


def _memory(machine: Machine) -> str:
    total = dict(machine.extra).get("memory_total_bytes")
    with_cpus = [node for node in machine.numa_nodes if node.cpus]
    only = [node.id for node in machine.numa_nodes if not node.cpus]
    nodes = f"{many(len(with_cpus), 'NUMA node')} with CPUs" if with_cpus else "no NUMA nodes told"
    memory_only = f", nodes {span(only)} memory only" if only else ""
    return f"{'total unknown' if total is None else bytes_text(total)}; {nodes}{memory_only}"


def _classes(machine: Machine) -> str:
    """Only where there are several kinds of cores."""
    if len(machine.core_classes) < 2:
        return ""
    return ", ".join(
        f"{kind.name} CPUs {span(kind.cpus)}" + ("" if kind.capacity is None else f" (capacity {kind.capacity})")
        for kind in machine.core_classes
    )


def _gpu(gpu: Gpu) -> str:
    parts = [
        f"{gpu.index}: {gpu.name or 'unnamed'}",
        "" if gpu.memory_bytes is None else bytes_text(gpu.memory_bytes),
        "" if gpu.sm_count is None else f"{gpu.sm_count} SMs",
        "" if gpu.compute_capability is None else f"compute capability {gpu.compute_capability}",
        "" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}",
        "" if gpu.mig in (None, "disabled") else f"MIG {gpu.mig}",
    ]
    return ", ".join(part for part in parts if part)


def wrap(label: str, text: str, width: int = WIDTH) -> list[str]:
    """Label and text in lines of at most `width`, continued under the text; CPU lists may break after a comma."""
    lines, line = [], label
    for piece in (piece for word in text.split() for piece in _pieces(word)):
        if len(line) + len(piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = " " * len(label)
        line += piece
    return [*lines, line.rstrip()]


def _pieces(word: str) -> list[str]:
    *parts, last = word.split(",")
    return [*(f"{part}," for part in parts), f"{last} "]
