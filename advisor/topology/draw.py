"""A picture of the array that a person reads at a glance, in plain text and at most 80 columns.

One box a group of the outermost axis that has several; in it one row an inner group, in it one cell a core. Groups that
look alike are drawn once or twice and then counted.

    0+48    core with two hardware threads, CPUs 0 and 48
    (3)     out of reach of this process
    --      hole: offline, or this machine is ragged here
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from advisor.records import Gpu, Machine
from advisor.topology.array import ABSENT, CpuArray, is_flat, size
from advisor.topology.files import span
from advisor.topology.limits import Limits, budget

WIDTH = 80
_SHOWN_ALIKE = 2
_MOST_CELLS = 24
_LABEL = 10


class _Row(NamedTuple):
    """The cores of one innermost group. `path`: (axis, index) of the groups it lies in; `cells`: one text a core."""

    path: tuple[tuple[str, int], ...]
    cells: tuple[str, ...]
    cpus: tuple[int, ...]
    look: tuple[str, ...]


def picture(machine: Machine) -> str:
    """The picture of a machine and one line each for its limits, caches, memory, GPUs, compilers and warnings.

    Args:
        machine: what the probe found.

    Returns:
        Plain text without a final newline; no line is longer than WIDTH.
    """
    return "\n".join([*_head(machine), "", *_boxes(machine), *_legend(machine), "", *_facts(machine)])


# --- the array ---


def _head(machine: Machine) -> list[str]:
    name = machine.model_name or f"{machine.vendor or 'unnamed'} CPU"
    sockets = "sockets unknown" if machine.sockets is None else _many(machine.sockets, "socket")
    counts = f"{_many(machine.cores, 'core')}, {_many(len(machine.online_cpus), 'CPU')} online"
    shape = " x ".join(f"{n} {axis}" for axis, n in zip(machine.array.axes, machine.array.shape, strict=True))
    holes = size(machine.array.shape) - len(machine.online_cpus)
    return [
        *_wrap("", f"{name} ({machine.architecture or 'architecture unknown'}): {sockets}, {counts}"),
        *_wrap("", f"array: {shape}" + (f", {_many(holes, 'hole')}" if holes else "")),
    ]


def _boxes(machine: Machine) -> list[str]:
    """All groups, those that look like their neighbours counted instead of drawn."""
    rows = _rows(machine.array, set(machine.allowed_cpus))
    boxes: dict[tuple[tuple[str, int], ...], list[_Row]] = {}
    depth = _box_depth(machine.array)
    for row in rows:
        boxes.setdefault(row.path[:depth], []).append(row)
    groups = list(boxes.values())
    lines: list[str] = []
    for first, count in _runs([[row.look for row in group] for group in groups]):
        shown = count if count <= _SHOWN_ALIKE + 1 else _SHOWN_ALIKE
        for group in groups[first : first + shown]:
            lines += _box(group, depth, machine.array)
        if shown < count:
            rest = [cpu for group in groups[first + shown : first + count] for row in group for cpu in row.cpus]
            axis = groups[first][0].path[depth - 1][0]
            lines += _wrap("  ... ", f"{count - shown} more {axis} groups alike: CPUs {span(rest)}")
    return lines


def _box_depth(array: CpuArray) -> int:
    """How many leading axes name a box: up to the first one with several groups, core and smt apart."""
    outer = array.shape[: _outer(array)]
    return next((i + 1 for i, extent in enumerate(outer) if extent > 1), len(outer))


def _outer(array: CpuArray) -> int:
    return 0 if is_flat(array) else max(0, len(array.axes) - 2)


def _rows(array: CpuArray, reach: set[int]) -> list[_Row]:
    """One row an innermost group that has a thread at all."""
    outer, smt = _outer(array), 1 if is_flat(array) else array.shape[-1]
    step = size(array.shape[outer:])
    rows = []
    for start in range(0, len(array.cpus), step):
        ids = array.cpus[start : start + step]
        cores = [ids[i : i + smt] for i in range(0, step, smt)]
        cpus = tuple(cpu for cpu in ids if cpu != ABSENT)
        if cpus:
            look = tuple(_look(core, reach) for core in cores)
            rows.append(_Row(_path(array, start // step), tuple(_cell(core, reach) for core in cores), cpus, look))
    return rows


def _path(array: CpuArray, index: int) -> tuple[tuple[str, int], ...]:
    """(axis, position) of the index-th innermost group."""
    path = []
    for axis, extent in reversed(list(zip(array.axes, array.shape, strict=True))[: _outer(array)]):
        path.append((axis, index % extent))
        index //= extent
    return tuple(reversed(path))


def _look(core: Sequence[int], reach: set[int]) -> str:
    """One letter a thread: there, out of reach, hole."""
    return "".join("-" if cpu == ABSENT else "x" if cpu in reach else "o" for cpu in core)


def _cell(core: Sequence[int], reach: set[int]) -> str:
    if all(cpu == ABSENT for cpu in core):
        return "--"
    if not any(cpu in reach for cpu in core):
        return "(" + "+".join("--" if cpu == ABSENT else str(cpu) for cpu in core) + ")"
    return "+".join("--" if cpu == ABSENT else str(cpu) if cpu in reach else f"({cpu})" for cpu in core)


def _runs(looks: Sequence[object]) -> list[tuple[int, int]]:
    """(first, length) of each run of equal elements."""
    runs: list[tuple[int, int]] = []
    for i, look in enumerate(looks):
        if runs and looks[runs[-1][0]] == look:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((i, 1))
    return runs


def _box(group: Sequence[_Row], depth: int, array: CpuArray) -> list[str]:
    title = " / ".join(f"{axis} {index}" for axis, index in group[0].path[:depth]) or "no groups known"
    inside = [i for i in range(depth, _outer(array)) if array.shape[i] > 1]
    lines = [f"+- {title} ".ljust(WIDTH - 1, "-") + "+"]
    before: tuple[tuple[str, int], ...] = ()
    for first, count in _runs([row.look for row in group]):
        shown = count if count <= 4 * _SHOWN_ALIKE else _SHOWN_ALIKE
        for row in group[first : first + shown]:
            path = tuple(row.path[i] for i in inside)
            lines += [_framed(line) for line in _row_lines(_label(path, before), row)]
            before = path
        if shown < count:
            rest = [cpu for row in group[first + shown : first + count] for cpu in row.cpus]
            text = f"{count - shown} more groups alike: CPUs {span(rest)}"
            lines += [_framed(line) for line in _wrap("... ", text, WIDTH - 4)]
    return [*lines, "+".ljust(WIDTH - 1, "-") + "+"]


def _framed(line: str) -> str:
    return f"| {line}".ljust(WIDTH - 1) + "|"


def _label(path: tuple[tuple[str, int], ...], before: tuple[tuple[str, int], ...]) -> str:
    """The path, with what the row above says already left blank."""
    same = 0
    while same < min(len(path), len(before)) and path[same] == before[same]:
        same += 1
    parts = [f"{axis} {index}" for axis, index in path]
    return "".join((part if i >= same else "").ljust(max(_LABEL, len(part) + 2)) for i, part in enumerate(parts))


def _row_lines(label: str, row: _Row) -> list[str]:
    """A label and cells, wrapped; many cells that look alike are cut to the first three and the last."""
    cells = list(row.cells)
    while cells[-1] == "--":
        cells.pop()
    missing = len(row.cells) - len(cells)
    note = [f"-- x {missing}" if missing > 1 else "--"] if missing else []
    if len(cells) > _MOST_CELLS and len(set(row.look)) == 1:
        note = [f"({len(cells)} cores: CPUs {span(row.cpus)})"]
        cells = [*cells[:3], "...", cells[-1]]
    width = max(map(len, cells))
    each = max(1, (WIDTH - 4 - len(label)) // (width + 2))
    lines = ["  ".join(cell.ljust(width) for cell in cells[i : i + each]).rstrip() for i in range(0, len(cells), each)]
    for text in note:
        if len(label) + len(lines[-1]) + 2 + len(text) <= WIDTH - 4:
            lines[-1] += f"  {text}"
        else:
            lines += _wrap("", text, WIDTH - 4 - len(label))
    return [(label if i == 0 else " " * len(label)) + line for i, line in enumerate(lines)]


def _legend(machine: Machine) -> list[str]:
    """What the marks mean, only those that were drawn."""
    found = []
    if machine.threads_per_core > 1:
        found.append("a+b: hardware threads of one core")
    if set(machine.online_cpus) - set(machine.allowed_cpus):
        found.append("(n): out of reach")
    if ABSENT in machine.array.cpus:
        found.append("--: hole (offline or absent)")
    return _wrap("  ", "; ".join(found)) if found else []


# --- one line each ---


def _facts(machine: Machine) -> list[str]:
    compilers = dict(machine.environment).get("compilers", ())
    openmp = dict(machine.environment).get("openmp", ())
    facts = [
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
    return [line for name, fact in facts if fact for line in _wrap(f"{name:<9}", fact)]


def _limits(machine: Machine) -> str:
    reach, online = len(machine.allowed_cpus), len(machine.online_cpus)
    limits = Limits(machine.allowed_cpus, machine.allowed_mems, machine.cpu_quota, machine.memory_limit_bytes, ())
    quota = "no CPU quota" if machine.cpu_quota is None else f"quota {machine.cpu_quota:g} CPUs"
    memory = "" if machine.memory_limit_bytes is None else f"; memory limit {_bytes(machine.memory_limit_bytes)}"
    where = (
        "all CPUs in reach" if reach == online else f"CPUs {span(machine.allowed_cpus)} in reach ({reach} of {online})"
    )
    offline = f"; offline {span(machine.offline_cpus)}" if machine.offline_cpus else ""
    return f"{where}; {quota}; budget {budget(limits, online)}{memory}{offline}"


def _caches(machine: Machine) -> str:
    named = (("L1d", machine.caches.l1d), ("L2", machine.caches.l2), ("L3", machine.caches.l3))
    known = [f"{name} {_bytes(found)}" for name, found in named if found is not None]
    groups = f" ({_many(len(machine.l3_groups), 'L3 group')})" if machine.l3_groups else ""
    return (", ".join(known) or "sizes unknown") + groups


def _memory(machine: Machine) -> str:
    total = dict(machine.extra).get("memory_total_bytes")
    with_cpus = [node for node in machine.numa_nodes if node.cpus]
    only = [node.id for node in machine.numa_nodes if not node.cpus]
    nodes = f"{_many(len(with_cpus), 'NUMA node')} with CPUs" if with_cpus else "no NUMA nodes told"
    memory_only = f", nodes {span(only)} memory only" if only else ""
    return f"{'total unknown' if total is None else _bytes(total)}; {nodes}{memory_only}"


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
        "" if gpu.memory_bytes is None else _bytes(gpu.memory_bytes),
        "" if gpu.sm_count is None else f"{gpu.sm_count} SMs",
        "" if gpu.compute_capability is None else f"compute capability {gpu.compute_capability}",
        "" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}",
        "" if gpu.mig in (None, "disabled") else f"MIG {gpu.mig}",
    ]
    return ", ".join(part for part in parts if part)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _bytes(count: float) -> str:
    """Bytes with a binary unit: 32 KiB, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.4g} {unit}"


def _wrap(label: str, text: str, width: int = WIDTH) -> list[str]:
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
