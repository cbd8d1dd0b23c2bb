"""Where the pages of a trial lie: the memory policies of a process part, set in a worker and read back.

    default     nothing is set: a page lies on the node of the thread that touches it first
    local       the same, asked for by name, whatever policy the process was started under
    interleave  pages go round robin over the nodes with CPUs in reach
    bind        pages lie on the nodes of the team's CPUs, nowhere else

Names stand in tables, never node numbers: those follow from the machine and the placement. A node without CPUs (a GPU's
memory, an expander) is never among them. Kernels refuse policies in many containers; a choice is then skipped.

Source: set_mempolicy(2), mbind(2), numa(7) for /proc/self/numa_maps; Linux arch/*/kernel/syscalls tables.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from advisor.errors import BadInput
from advisor.records import NumaNode
from advisor.topology.files import span

MODES = {"default": 0, "bind": 2, "interleave": 3, "local": 4}
"""Memory policy -> MPOL_DEFAULT, MPOL_BIND, MPOL_INTERLEAVE, MPOL_LOCAL."""

NAMED = ("bind", "interleave")
"""Policies that take nodes."""

SYSCALLS = {"x86_64": (238, 237), "aarch64": (237, 235), "ppc64le": (261, 259), "s390x": (270, 268)}
"""Machine -> numbers of set_mempolicy and mbind."""

MAPS = "/proc/self/numa_maps"
MOVE = 2
"""MPOL_MF_MOVE: pages that are there already follow the policy."""

_BITS = 1024
"""Length of the node mask; kernels have at most this many nodes."""


class Where(NamedTuple):
    """A policy and its nodes, none for default and local."""

    policy: str
    nodes: tuple[int, ...]


class Lying(NamedTuple):
    """What the kernel says of some memory. `policy`: as numa_maps spells it; `pages`: node -> pages in 4 KiB units."""

    policy: str
    pages: dict[int, int]


class PolicyRefused(Exception):
    """The kernel does not let this process set a memory policy. Never leaves the worker: it becomes a status."""


def where(policy: str, nodes: Sequence[NumaNode], cpus: Iterable[int], allowed_mems: Sequence[int] | None) -> Where:
    """The nodes that a policy means for a team.

    Args:
        policy: of MODES.
        nodes: the machine's.
        cpus: where the team runs; the whole mask when it is not pinned.
        allowed_mems: node ids that the cpuset lets the process have memory on, None for all.

    Raises:
        BadInput: no such policy, or no node of it may be used here.
    """
    if policy not in MODES:
        raise BadInput("a process part needs a known memory policy", got=policy, allowed=", ".join(MODES))
    if policy not in NAMED:
        return Where(policy, ())
    team = set(cpus)
    hosts = [node for node in nodes if node.cpus and node.memory_bytes != 0]
    wanted = [node.id for node in hosts if policy == "interleave" or team.intersection(node.cpus)]
    found = tuple(node for node in wanted if allowed_mems is None or node in allowed_mems)
    if not found or (policy == "bind" and len(found) < len(wanted)):
        mems = "all" if allowed_mems is None else span(allowed_mems)
        raise BadInput(
            f"memory policy {policy} needs memory on the team's nodes", got=span(wanted) or "none", allowed=mems
        )
    return Where(policy, found)


def policies(nodes: Sequence[NumaNode], allowed: bool | None, allowed_mems: Sequence[int] | None) -> tuple[str, ...]:
    """The memory policies worth measuring: names that put pages on different nodes.

    `local` is what first touch by a pinned team gives anyway, and `bind` the same again while memory lasts. On one node
    all policies are one; where the kernel refuses them there is one as well.

    Args:
        nodes: the machine's.
        allowed: whether a memory policy may be set, as tried; None where it could not be tried.
        allowed_mems: as of `where`.
    """
    hosts = [node.id for node in nodes if node.cpus and node.memory_bytes != 0]
    reached = [node for node in hosts if allowed_mems is None or node in allowed_mems]
    return ("default", "interleave") if allowed and len(reached) > 1 else ("default",)


# --- inside a worker ---


def set_policy(wanted: Where) -> None:
    """Set the policy of this thread and of threads that it starts from now on.

    Raises:
        PolicyRefused: the kernel says no.
    """
    mask, bits = _mask(wanted.nodes)
    _call(0, wanted, ctypes.c_int(MODES[wanted.policy]), mask, bits)


def place(address: int, size: int, wanted: Where) -> None:
    """Set the policy of a range of memory, whoever touches it first. address: of a page; size: bytes.

    Raises:
        PolicyRefused: the kernel says no.
    """
    if wanted.policy == "default" or size == 0:
        return
    mask, bits = _mask(wanted.nodes)
    mode, length = ctypes.c_int(MODES[wanted.policy]), ctypes.c_ulong(size)
    _call(1, wanted, ctypes.c_void_p(address), length, mode, mask, bits, ctypes.c_uint(MOVE))


def _mask(nodes: Sequence[int]) -> tuple[ctypes.Array[ctypes.c_ulong] | None, ctypes.c_ulong]:
    """A node mask and its length as the calls want it; no mask of no nodes."""
    if not nodes:
        return None, ctypes.c_ulong(0)
    word = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (_BITS // word))()
    for node in nodes:
        mask[node // word] |= 1 << (node % word)
    return mask, ctypes.c_ulong(_BITS)


def _call(which: int, wanted: Where, *arguments: object) -> None:
    numbers = SYSCALLS.get(os.uname().machine)
    if numbers is None:
        raise PolicyRefused(f"memory policies cannot be set on {os.uname().machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(numbers[which]), *arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        at = f" on nodes {span(wanted.nodes)}" if wanted.nodes else ""
        raise PolicyRefused(f"memory binding denied: {wanted.policy}{at}: {reason}")


# --- read back ---


def lying(ranges: Sequence[tuple[int, int]], maps: str = MAPS) -> Lying | None:
    """What the kernel says of memory ranges: policy of the first, pages of all by node.

    Args:
        ranges: (first address, bytes) of each.
        maps: the file to read.

    Returns:
        None where the kernel tells nothing, or not of these ranges.
    """
    try:
        with open(maps, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    starts = sorted((int(words[0], 16), i) for i, words in enumerate(lines) if len(words) > 1)
    policy, pages = None, dict[int, int]()
    for index in _covering(starts, ranges):
        policy = policy or lines[index][1]
        for node, count in _pages(lines[index][2:]).items():
            pages[node] = pages.get(node, 0) + count
    return None if policy is None else Lying(policy, dict(sorted(pages.items())))


def _covering(starts: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Lines whose mapping begins inside a range, or is the last to begin at or before it; in the order of ranges."""
    found: dict[int, None] = {}
    for address, size in ranges:
        before = [line for start, line in starts if start <= address]
        inside = [line for start, line in starts if address < start < address + size]
        found.update(dict.fromkeys([*before[-1:], *inside]))
    return list(found)


def _pages(words: Iterable[str]) -> dict[int, int]:
    """Node -> pages of 4 KiB of one line; huge pages of hugetlb count as what they hold."""
    told = dict(word.split("=", 1) for word in words if "=" in word)
    unit = max(1, int(told.get("kernelpagesize_kB", "4")) // 4)
    return {int(name[1:]): int(count) * unit for name, count in told.items() if name[0] == "N" and name[1:].isdigit()}


def keeps(found: Lying, wanted: Where) -> bool:
    """Whether memory has the policy that was asked for. Spelled as in `interleave:0-1`, `bind=static:0`."""
    name = found.policy.replace("=", ":").split(":")[0]
    return wanted.policy in ("default", name)
