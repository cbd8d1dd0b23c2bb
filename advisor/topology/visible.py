"""What CUDA_VISIBLE_DEVICES means: which GPUs a program sees, and under which numbers.

For where the CUDA driver itself cannot be asked. An answer that depends on CUDA's own order of different GPUs is not
given: that order (fastest first) is not told by anybody else. A number may have a tail (`1abc` is 1); the first entry
decides whether numbers or uuids are read, and one of the other kind is invalid.

Source: CUDA Programming Guide, "CUDA Environment Variables"; repeated, half-numeric
and mixed entries as driver 580 on two H200 took them (docs/gpus.md).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BY_BUS = "PCI_BUS_ID"
"""The value of CUDA_DEVICE_ORDER with which indices follow the bus; otherwise the fastest GPU comes first."""

_HEX = re.compile("[0-9a-fA-F]+")
_DIGITS = re.compile(r"\s*\+?(\d+)")


class Known(NamedTuple):
    """What must be known of a GPU or slice: its uuid as nvidia-smi spells it, bus address, model."""

    uuid: str | None
    pci: str | None
    name: str | None
    is_slice: bool = False
    slice_of: str | None = None


def cuda_order(devices: Sequence[Known], order: str | None) -> tuple[int, ...] | None:
    """Positions of the devices in the order in which CUDA counts them; None where nobody tells.

    Args:
        devices: all of the machine.
        order: the value of CUDA_DEVICE_ORDER.
    """
    if len(devices) < 2:
        return tuple(range(len(devices)))
    alike = len({device.name for device in devices}) == 1 and devices[0].name is not None
    if (order != BY_BUS and not alike) or not all(bus_key(device.pci) for device in devices):
        return None
    return tuple(sorted(range(len(devices)), key=lambda i: bus_key(devices[i].pci)))


def bus_key(address: str | None) -> tuple[int, ...]:
    """A bus address as numbers: NVML writes the domain with eight digits, CUDA and the kernel with four. () if none."""
    words = re.split("[:.]", (address or "").strip())
    return tuple(int(word, 16) for word in words) if all(_HEX.fullmatch(word) for word in words) else ()


def visible(spelled: str | None, devices: Sequence[Known], order: str | None = None) -> tuple[int, ...] | None:
    """Positions of the visible devices, in CUDA's numbering: the first is device 0.

    Args:
        spelled: the value of CUDA_VISIBLE_DEVICES, None when it is not set.
        devices: all of the machine, whole GPUs and slices.
        order: the value of CUDA_DEVICE_ORDER.

    Returns:
        Positions in `devices`; None where it cannot be known without asking CUDA.
    """
    ordered = cuda_order(devices, order)
    if spelled is None:
        return None if any(device.is_slice for device in devices) else ordered
    entries = [entry.strip() for entry in spelled.split(",")]
    if not _DIGITS.match(entries[0]):
        return _by_uuids(entries, devices)
    if ordered is None or any(device.is_slice for device in devices):
        return None
    numbers = (int(match[1]) if (match := _DIGITS.match(entry)) else len(ordered) for entry in entries)
    return _until_invalid(ordered[number] if number < len(ordered) else None for number in numbers)


def _until_invalid(positions: Iterable[int | None]) -> tuple[int, ...]:
    """An invalid entry hides itself and what follows; a repeated one hides all (the driver refuses to start)."""
    found = tuple(itertools.takewhile(lambda at: at is not None, positions))
    return found if len(set(found)) == len(found) else ()  # type: ignore[return-value]


def _by_uuids(entries: Sequence[str], devices: Sequence[Known]) -> tuple[int, ...] | None:
    """Positions where the first entry is a uuid: all must be, of the same kind. None: which slice is not told."""
    kind = entries[0][:4]
    if kind not in ("GPU-", "MIG-"):
        return ()
    at = [_by_uuid(entry.lower(), devices) if entry.startswith(kind) else None for entry in entries]
    seen = len(list(itertools.takewhile(lambda place: place is not None, at)))
    if seen < len(at) and _names_a_cut_gpu(entries[seen].lower(), devices):
        return None
    return _until_invalid(at)


def _by_uuid(word: str, devices: Sequence[Known]) -> int | None:
    """The one device whose uuid begins so, or whose whole uuid the word begins with; None for none or several."""
    uuids = [(device.uuid or "?").lower() for device in devices]
    found = [i for i, uuid in enumerate(uuids) if uuid.startswith(word) or word.startswith(uuid)]
    return found[0] if len(found) == 1 else None


def _names_a_cut_gpu(word: str, devices: Sequence[Known]) -> bool:
    """Whether an entry names the GPU that a slice is cut from: `GPU-...`, or `MIG-GPU-.../1/0` of old drivers."""
    parent = word.removeprefix("mig-").partition("/")[0]
    return parent.startswith("gpu-") and any((d.slice_of or "").lower().startswith(parent) for d in devices)
