"""How much memory a trial needs and how much there is, before anything is launched.

What there is: the least of MemAvailable and the room left under every memory limit from this process's control group
up to the root, version 1 and 2. A limit's page cache that the kernel would give back counts as room.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from advisor.kernels.spec import KernelSpec
from advisor.paths import text_of
from advisor.records import Machine, Problem

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
USABLE = 0.9
"""Share of the room that a trial may take: the rest is for the interpreter, the page tables, everybody else."""

COLD_FACTOR = 2
"""Cold operands rotate through this many times the last-level caches, so that each is evicted before its next turn."""

ASSUMED_CACHE_BYTES = 64 << 20
"""Last-level cache where its size is unknown: more than most have, so that cold stays cold."""

MOST_SETS = 1024
"""Sets of cold operands at most: each has mappings of its own, and a process may have some 65000."""

_V1_UNLIMITED = 1 << 60
"""Version 1 writes a number near 2**63 where there is no limit."""


def operand_bytes(spec: KernelSpec, problem: Problem) -> int:
    """Bytes of one set of operands, inputs and outputs."""
    types = spec.types(problem)
    return sum(math.prod(shape) * ITEM_BYTES[types[name]] for name, shape in spec.shapes(problem).items())


def need_bytes(spec: KernelSpec, problem: Problem, copies: int = 1) -> int:
    """Bytes that a trial keeps and needs for a moment, apart from the variant's workspace.

    Args:
        spec: the kernel's spec.
        problem: one problem.
        copies: sets of operands that exist side by side (several in the cold regime).

    Returns:
        Inputs and outputs in their dtype, once as they are made and once for each copy, and once more in float64 for
        the reference.
    """
    elements = sum(math.prod(shape) for shape in spec.shapes(problem).values())
    return operand_bytes(spec, problem) * (1 + copies) + elements * ITEM_BYTES["float64"]


def cache_bytes(machine: Machine) -> int:
    """Bytes of all last-level caches together."""
    return (machine.caches.l3 or 0) * max(1, len(machine.l3_groups)) or ASSUMED_CACHE_BYTES


def operand_sets(machine: Machine, spec: KernelSpec, problem: Problem) -> int:
    """Sets of operands that calls rotate through: one when warm, else enough to evict each before its next turn."""
    if problem.regime != "cold":
        return 1
    one = max(1, operand_bytes(spec, problem))
    return min(MOST_SETS, max(2, -(-COLD_FACTOR * cache_bytes(machine) // one) + 1))


def is_evicted(machine: Machine, spec: KernelSpec, problem: Problem) -> bool:
    """Whether the sets hold more than the last-level caches; with the most sets, small operands may not."""
    return operand_sets(machine, spec, problem) * operand_bytes(spec, problem) > cache_bytes(machine)


def room_bytes(root: str = "/", pid: str = "self") -> int | None:
    """Bytes that may be taken now, None where neither /proc/meminfo nor a limit can be read."""
    found = [_available(root), *_group_rooms(root, pid)]
    known = [room for room in found if room is not None]
    return max(0, min(known)) if known else None


def _number(path: str) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None  # "max" means no limit


def _available(root: str) -> int | None:
    for line in text_of(os.path.join(root, "proc/meminfo")).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "MemAvailable:" and words[1].isdigit():
            return int(words[1]) * 1024
    return None


def _group_rooms(root: str, pid: str) -> list[int]:
    """Room under each memory limit on the way from this process's groups up to the root of each hierarchy."""
    rooms = []
    for line in text_of(os.path.join(root, "proc", pid, "cgroup")).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            rooms += _walk(os.path.join(root, "sys/fs/cgroup"), path, _room_v2)
        elif "memory" in controllers.split(","):
            rooms += _walk(os.path.join(root, "sys/fs/cgroup/memory"), path, _room_v1)
    return rooms


def _walk(mount: str, path: str, room_of: Callable[[str], int | None]) -> list[int]:
    """Inside a container the path may be the host's and not exist here; the walk then ends at the mount itself."""
    parts = [part for part in path.split("/") if part and part != ".."]
    folders = [os.path.join(mount, *parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [room for room in map(room_of, folders) if room is not None]


def _room_v2(folder: str) -> int | None:
    return _room(folder, ("memory.max", "memory.current", "inactive_file"))


def _room_v1(folder: str) -> int | None:
    return _room(folder, ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))


def _room(folder: str, names: tuple[str, str, str]) -> int | None:
    limit, used = _number(os.path.join(folder, names[0])), _number(os.path.join(folder, names[1]))
    if limit is None or used is None or limit >= _V1_UNLIMITED:
        return None
    for line in text_of(os.path.join(folder, "memory.stat")).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == names[2] and words[1].isdigit():
            used -= int(words[1])
    return limit - used
