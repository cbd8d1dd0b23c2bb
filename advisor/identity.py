"""Which machine is this, and which part of it may be used: the ids that tables are kept under.

    hardware_id   model, instruction sets, the shape of the whole array, cache sizes, NVIDIA GPUs by PCI id
    limits_id     shape of the part in reach, floor of the CPU quota, memory policy allowed or not

No host name, no CPU numbering, no memory total (it grows on some virtual machines), nothing that needs a driver or a
subprocess. The probe calls this module too, so that its ids are these. Standard library only, and no `typing`, `re` or
`ctypes` at import: the hot path imports it.
"""

from __future__ import annotations

import os
import sys
from collections import namedtuple

from advisor.sources import short_hash
from advisor.topology import limits as limits_of
from advisor.topology import sysfs
from advisor.topology.array import build, flat, live, pattern
from advisor.topology.files import is_folder, names, number, raw, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple

    from advisor.topology.array import CpuArray
    from advisor.topology.limits import Limits
    from advisor.topology.sysfs import Layout

    class Here(NamedTuple):  # noqa: D101 (documented below, where it is made)
        hardware_id: str
        limits_id: str
        array: CpuArray
        allowed: tuple[int, ...]
        budget: int
        kernel: str | None
        isa: tuple[str, ...]
        cpu_quota: float | None
        memory_limit_bytes: int | None
        warnings: tuple[str, ...]
        groupings: Callable[[], dict[str, tuple[tuple[int, ...], ...]]] | None = None
else:
    Here = namedtuple(
        "Here",
        "hardware_id limits_id array allowed budget kernel isa cpu_quota memory_limit_bytes warnings groupings",
        defaults=(None,),
    )
    Here.__doc__ = """The machine at hand, as far as a lookup needs it.

    array: the whole machine; allowed: online CPU ids in reach, never empty; budget: CPUs that mask and quota pay for,
    at least 1; kernel: release as MAJOR.MINOR; isa: instruction sets; cpu_quota, memory_limit_bytes: None without one;
    groupings: reads the groupings that placements may name, core classes among them: few placements name one.
    """

NVIDIA = "0x10de"
DISPLAY_CLASS = "0x03"
"""PCI base class of display and 3D controllers. Source: PCI Code and ID Assignment Specification."""

RECORDED_POLICY = "witness/memory_policy"
"""Where a recorded tree keeps what `memory_policy_allowed` gave on its machine: True, False or None."""

MEMORY_SYSCALLS = {"x86_64": (239, 238), "aarch64": (236, 237), "ppc64le": (260, 261), "s390x": (269, 270)}
"""get_mempolicy and set_mempolicy. Source: Linux arch/*/kernel/syscalls tables."""


def here(root: str = "/") -> Here:
    """The machine at hand (or a recorded tree) and its limits, read anew: some milliseconds, no subprocess.

    Never raises for what the kernel does not tell; see `Here.warnings`.
    """
    limits, layout = survey(root)
    array = whole(layout)
    allowed = reach(limits, layout)
    return Here(
        hardware_id(layout, array, root),
        limits_id(limits, layout, array, root),
        array,
        allowed,
        limits_of.budget(limits, len(allowed)),
        kernel_release(root),
        layout.cpu.isa,
        limits.cpu_quota,
        limits.memory_limit_bytes,
        limits.warnings + layout.warnings,
        LazyGroupings(layout, root),
    )


class LazyGroupings:
    """`groupings`, read when it is called. Equal when it is of equal layouts."""

    def __init__(self, layout: Layout, root: str) -> None:
        self.of = layout, root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyGroupings) and self.of == other.of

    def __hash__(self) -> int:
        return hash(self.of)

    def __call__(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Read them."""
        return groupings(*self.of)


def groupings(layout: Layout, root: str = "/") -> dict[str, tuple[tuple[int, ...], ...]]:
    """Name -> groups of online CPUs; `class` (kinds of cores, strongest first) where they are of several kinds."""
    if not _may_differ(layout, root):
        return dict(layout.groupings)
    from advisor.topology.details import core_classes

    kinds = core_classes(root, layout)
    found = dict(layout.groupings)
    return {**found, "class": tuple(kind.cpus for kind in kinds)} if len(kinds) > 1 else found


def _may_differ(layout: Layout, root: str) -> bool:
    """Whether anything hints at cores of several kinds: most machines have one, and what tells kinds apart is slow to
    load for a lookup."""
    if not sys.platform.startswith("linux"):
        return True
    folders = [os.path.join(root, sysfs.CPU, f"cpu{cpu}") for cpu in layout.online]
    if any(is_folder(os.path.join(root, "sys/devices", kind)) for kind in sysfs.KINDS):
        return True
    if "CPU part" in (raw(os.path.join(root, "proc/cpuinfo"), 4096) or "") or not folders:
        return True
    if is_folder(os.path.join(folders[0], "regs/identification")):
        return True
    told = ("cpu_capacity", "cpufreq/base_frequency", "cpufreq/cpuinfo_max_freq")
    known = tuple(file for file in told if number(os.path.join(folders[0], file)) is not None)
    return any(len({number(os.path.join(folder, file)) for folder in folders}) > 1 for file in known)


def survey(root: str = "/") -> tuple[Limits, Layout]:
    """Limits and layout of one root; the CPUs in reach are believed to be online (see `sysfs.read`).

    The limits' allowed CPUs are cut to those online: a recorded mask may name CPUs that do not exist.
    """
    if root == "/" and not sys.platform.startswith("linux"):
        from advisor.topology import foreign

        return foreign.survey()
    limits = limits_of.read(root)
    layout = sysfs.read(root, limits.allowed_cpus or ())
    return limits._replace(allowed_cpus=reach(limits, layout)), layout


def whole(layout: Layout) -> CpuArray:
    """The array of the whole machine, limits ignored; flat where the kernel tells no grouping at all."""
    if not layout.groupings:
        return flat(layout.online)
    return build(dict(layout.groupings), layout.online)


def reach(limits: Limits, layout: Layout) -> tuple[int, ...]:
    """The online CPU ids that the process may use: all where no mask is told."""
    if limits.allowed_cpus is None:
        return layout.online
    return tuple(sorted(set(limits.allowed_cpus) & set(layout.online)))


# --- the ids ---


def hardware_id(layout: Layout, array: CpuArray, root: str = "/") -> str:
    """Twelve hex digits that equal machines share; see the top of this module for what they speak of."""
    return _digest(
        ("model", layout.cpu.model),
        ("isa", layout.cpu.isa),
        ("axes", array.axes),
        ("shape", array.shape),
        ("threads", pattern(array)),
        ("caches", layout.caches),
        ("gpus", pci_gpus(root)),
    )


def limits_id(limits: Limits, layout: Layout, array: CpuArray, root: str = "/") -> str:
    """Twelve hex digits of the limits, as far as they change what is best; no CPU ids: equal parts are equal."""
    part = live(array, reach(limits, layout))
    quota = None if limits.cpu_quota is None else max(1, int(limits.cpu_quota))
    facts: list[tuple[str, object]] = [("axes", part.axes), ("shape", part.shape), ("threads", pattern(part))]
    facts.append(("quota", quota))
    told = None if root == "/" else text(os.path.join(root, RECORDED_POLICY))
    if layout.memory_nodes > 1 and (root == "/" or told is not None):
        allowed = memory_policy_allowed() if root == "/" else {"True": True, "False": False}.get(told or "")
        facts.append(("memory policy", allowed))
    return _digest(*facts)


def _digest(*facts: tuple[str, object]) -> str:
    return short_hash(repr(facts).encode())


def pci_gpus(root: str = "/") -> tuple[str, ...]:
    """`vendor:device` of every NVIDIA display or 3D controller on the PCI bus, sorted: the same without a driver."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    found = []
    for name in names(folder):
        if text(f"{folder}/{name}/vendor") == NVIDIA and (text(f"{folder}/{name}/class") or "").startswith(
            DISPLAY_CLASS
        ):
            found.append(f"{NVIDIA[2:]}:{(text(f'{folder}/{name}/device') or '')[2:]}")
    return tuple(sorted(found))


def kernel_release(root: str = "/") -> str | None:
    """MAJOR.MINOR of the kernel, None where a recorded tree does not tell."""
    release = os.uname().release if root == "/" else text(os.path.join(root, "proc/sys/kernel/osrelease"))
    parts = (release or "").split("-")[0].split(".")
    return ".".join(parts[:2]) if len(parts) > 1 else None


def memory_policy_allowed() -> bool | None:
    """Whether this thread may set its memory policy (containers often forbid it); None where that cannot be tried.

    The policy is set to what it already is, so nothing changes.
    """
    calls = MEMORY_SYSCALLS.get(os.uname().machine)
    if calls is None:
        return None
    import ctypes

    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    mode, bits = ctypes.c_int(0), (ctypes.c_ulong * 64)()
    size = ctypes.c_ulong(8 * ctypes.sizeof(bits))
    if syscall(calls[0], ctypes.byref(mode), bits, size, None, ctypes.c_ulong(0)) != 0:
        return False
    mask = bits if any(bits) else None
    return bool(syscall(calls[1], mode, mask, size if mask is not None else ctypes.c_ulong(0)) == 0)
