"""Which machine is this, and which part of it may be used: the ids that tables are kept under.

    hardware_id   model, instruction sets, the shape of the whole array, cache sizes, NVIDIA GPUs by PCI id
    limits_id     shape of the part in reach, floor of the CPU quota, memory policy allowed or not

No host name, no CPU numbering, no memory total (it grows on some virtual machines), nothing that needs a driver or a
subprocess. The probe calls this module too, so that its ids are these. Standard library only, and no `typing`, `re` or
`ctypes` at import: the hot path imports it.
"""

from __future__ import annotations

import os
from collections import namedtuple

from advisor.sources import short_hash
from advisor.topology import limits as limits_of
from advisor.topology import sysfs
from advisor.topology.array import build, flat, live, pattern
from advisor.topology.files import names, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from advisor.records import Machine
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
else:
    Here = namedtuple(
        "Here",
        "hardware_id limits_id array allowed budget kernel isa cpu_quota memory_limit_bytes warnings",
    )
    Here.__doc__ = """The machine at hand, as far as a lookup needs it.

    array: the whole machine; allowed: online CPU ids in reach, never empty; budget: CPUs that mask and quota pay for,
    at least 1; kernel: release as MAJOR.MINOR; isa: instruction sets; cpu_quota, memory_limit_bytes: None without one.
    """

NVIDIA = "0x10de"
DISPLAY_CLASS = "0x03"
"""PCI base class of display and 3D controllers. Source: PCI Code and ID Assignment Specification."""

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
    )


def survey(root: str = "/") -> tuple[Limits, Layout]:
    """Limits and layout of one root; the CPUs in reach are believed to be online (see `sysfs.read`).

    The limits' allowed CPUs are cut to those online: a recorded mask may name CPUs that do not exist.
    """
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
    if root == "/" and layout.memory_nodes > 1:
        facts.append(("memory policy", memory_policy_allowed()))
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


# --- what a difference means ---

_HARDWARE = (
    ("model_name", "the CPU model"),
    ("isa", "the instruction sets"),
    ("caches", "the cache sizes"),
    ("gpus", "the GPUs"),
)

_SUMMARIES = ("compilers", "openmp")
"""Environment fields that only list what other fields say."""


def explain(old: Machine, new: Machine) -> list[str]:
    """Sentences naming what differs between two descriptions and what follows for tables; none when nothing does.

    Args:
        old: the machine that a table was made on.
        new: the machine at hand.
    """
    if old.hardware_id != new.hardware_id:
        found = [f"{label}: was {_short(old, name)}, is {_short(new, name)}" for name, label in _changed(old, new)]
        if (old.array.axes, old.array.shape) != (new.array.axes, new.array.shape):
            found.append(f"the array of online CPUs: was {_form(old.array)}, is {_form(new.array)}")
        return [f"{what}; tables of the old machine do not hold here" for what in found or ["the hardware id differs"]]
    found = _limit_changes(old, new) if old.limits_id != new.limits_id else []
    sentences = [f"{what}; tables tuned under the old limits are not used" for what in found]
    was, now = dict(old.environment), dict(new.environment)
    for field in sorted(was.keys() | now.keys()):
        if was.get(field) != now.get(field) and field not in _SUMMARIES:
            sentences.append(
                f"environment field {field}: was {was.get(field)!r}, is {now.get(field)!r}; "
                "rows that depend on it are stale"
            )
    return sentences


def _changed(old: Machine, new: Machine) -> list[tuple[str, str]]:
    return [(name, label) for name, label in _HARDWARE if getattr(old, name) != getattr(new, name)]


def _short(machine: Machine, name: str) -> str:
    value = getattr(machine, name)
    if name == "gpus":
        return ", ".join(gpu.name or "unnamed" for gpu in value) or "none"
    if name == "caches":
        return " ".join(f"{level} {size}" for level, size in value._asdict().items())
    return " ".join(value) if isinstance(value, tuple) else repr(value)


def _form(array: CpuArray) -> str:
    return " x ".join(f"{extent} {axis}" for axis, extent in zip(array.axes, array.shape, strict=True))


def _limit_changes(old: Machine, new: Machine) -> list[str]:
    was, now = live(old.array, old.allowed_cpus), live(new.array, new.allowed_cpus)
    found = []
    if was.shape != now.shape:
        found.append(f"the part in reach: was {_form(was)}, is {_form(now)}")
    if old.cpu_quota != new.cpu_quota:
        found.append(f"the CPU quota: was {old.cpu_quota}, is {new.cpu_quota}")
    return found or ["whether a memory policy may be set"]
