"""The GPUs of the machine at hand, asked in child processes that may not take long.

NVML tells what there is, the CUDA driver which of it a program sees under which number, nvidia-smi stands in for NVML.
They order GPUs differently, so what they say is joined by UUID or bus address, never by index; what cannot be joined
stays unknown. No driver is no error: it is a machine without usable GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from advisor.codec import from_json, loads
from advisor.errors import BadInput
from advisor.identity import pci_gpus
from advisor.records import Gpu, NumaNode
from advisor.sources import short_hash
from advisor.topology import details, smi, visible
from advisor.topology.child import ask, ask_python
from advisor.topology.files import number

LIMIT_S = 10.0
"""NVML starts in 0.02 to 2 s, the longest without persistence mode; a wedged driver never answers."""

SIGNS = ("dev/nvidiactl", "proc/driver/nvidia", "dev/dxg")
"""Any of these means that an NVIDIA driver may answer (dxg: the one of a Windows host)."""

HERE = os.path.dirname(os.path.abspath(__file__))
CUT = " MIG "
"""Stands between the board's name and the profile in the name that the driver gives a slice."""

SHARED = "not supported"
"""What NVML says of the memory of a GPU that has none of its own."""


class GpuReport(NamedTuple):
    """`gpus` with host NUMA nodes; versions and power limits for the environment; sentences on what went wrong."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    cuda: str | None
    power_limits_w: tuple[float, ...]
    warnings: tuple[str, ...]


NONE = GpuReport((), None, None, (), ())


class Witnesses(NamedTuple):
    """How the three are asked; tests put others in their place. Each gives text, None when it hangs or is missing."""

    nvml: Callable[[], str | None] = lambda: ask_python(os.path.join(HERE, "gpu_child.py"), LIMIT_S)
    cuda: Callable[[], str | None] = lambda: ask_python(os.path.join(HERE, "cuda_child.py"), LIMIT_S)
    table: Callable[[list[str]], str | None] = lambda argv: ask(argv, LIMIT_S)
    program: Callable[[], str | None] = smi.program


def find(nodes: Sequence[NumaNode], witnesses: Witnesses | None = None) -> GpuReport:
    """The GPUs of the machine at hand.

    Args:
        nodes: the NUMA nodes, to tell which node with CPUs is nearest to each GPU.
        witnesses: who is asked; the real ones when None.
    """
    if witnesses is None and not _may_be_there():
        return NONE  # starting an interpreter to be told so takes a tenth of a second
    real = witnesses or Witnesses()
    answer = real.nvml()
    told, warnings = _told(answer)
    if answer is None:  # a wedged driver: nvidia-smi and CUDA would hang in it too
        return NONE._replace(warnings=tuple(warnings))
    path = None if told.get("gpus") else real.program()
    instead = smi.report(path, real.table) if path else None
    if instead and instead["gpus"]:
        told, warnings = instead, []
    seen, _ = _told(real.cuda())
    if not told.get("gpus") and not seen.get("devices"):
        return NONE._replace(warnings=tuple(warnings))
    return joined(told, seen, nodes, tuple(warnings))


def _may_be_there() -> bool:
    """Whether anything says that NVML would answer: a card on the bus, a driver, nvidia-smi, a pynvml brought along."""
    if pci_gpus() or any(os.path.exists(os.path.join("/", sign)) for sign in SIGNS) or smi.program():
        return True
    brought = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return any(os.path.exists(os.path.join(folder, name)) for folder in brought for name in ("pynvml.py", "pynvml"))


def _told(answer: str | None) -> tuple[dict[str, Any], list[str]]:
    """The object of a child's JSON text, and sentences on what is wrong with it."""
    if answer is None:
        error = f"did not answer within {LIMIT_S:g} s"
        return {"error": error}, [f"the NVIDIA driver {error}: no GPU is listed by it"]
    try:
        told = loads(answer, "the GPU report")
    except BadInput:
        return {"error": "cannot be read"}, ["the GPU report cannot be read: no GPU is listed"]
    if not isinstance(told, dict):
        return {"error": "cannot be read"}, ["the GPU report cannot be read: no GPU is listed"]
    if "error" in told:
        return told, [f"an NVIDIA driver is there but cannot be asked ({told['error']})"]
    return told, []


def read(answer: str | None, nodes: Sequence[NumaNode]) -> GpuReport:
    """The report of NVML's JSON text alone; see `find`."""
    told, warnings = _told(answer)
    return joined(told, {"error": "not asked"}, nodes, tuple(warnings))


def joined(
    told: dict[str, Any], seen: dict[str, Any], nodes: Sequence[NumaNode], warnings: tuple[str, ...] = ()
) -> GpuReport:
    """One report of what NVML (or nvidia-smi) and CUDA said.

    Args:
        told: rows of the machine's GPUs, see `gpu_child.report`.
        seen: CUDA's devices in CUDA's order, see `cuda_child`; an object with `error` where it could not be asked.
        nodes: the NUMA nodes.
        warnings: what is to be said already.
    """
    rows = [dict(row) for row in told.get("gpus", ())]
    devices = list(seen.get("devices", ())) if "error" not in seen else None
    places = _cuda_places(rows, devices)
    for row, place in zip(rows, places, strict=True):
        _complete(row, None if devices is None or place is None or place < 0 else devices[place])
        row["cuda_index"] = None if place is None or place < 0 else place
        row["visible"] = None if place is None else place >= 0
    strangers = [d for i, d in enumerate(devices or ()) if i not in places]
    rows += [_from_cuda(device) for device in strangers if not rows]  # CUDA without NVML: small boards, some guests
    found = tuple(_gpu(row, nodes) for row in rows)
    power = tuple(gpu.power_limit_w for gpu in found if gpu.power_limit_w is not None and gpu.slice_of is None)
    return GpuReport(found, told.get("driver"), told.get("cuda"), power, (*warnings, *_notes(found, strangers)))


def _cuda_places(rows: list[dict[str, Any]], devices: list[dict[str, Any]] | None) -> list[int | None]:
    """For each row its number in CUDA, -1 for hidden, None for unknown."""
    if devices is None:
        known = [visible.Known(r.get("uuid"), r.get("pci"), r.get("name"), bool(r.get("slice_of")), r.get("slice_of"))
                 for r in rows]  # fmt: skip
        order = visible.visible(os.environ.get("CUDA_VISIBLE_DEVICES"), known, os.environ.get("CUDA_DEVICE_ORDER"))
        return [None if order is None else order.index(i) if i in order else -1 for i in range(len(rows))]
    at = [next((i for i, device in enumerate(devices) if _same(row, device)), None) for row in rows]
    complete = len([place for place in at if place is not None]) == len(devices)
    return [-1 if place is None and complete else place for place in at]


def _bare(uuid: str | None) -> str:
    return (uuid or "").lower().removeprefix("gpu-").removeprefix("mig-")


def _same(row: dict[str, Any], device: dict[str, Any]) -> bool:
    """Whether both are one device: by UUID where both have one; by bus, which slices of one GPU share, else."""
    if row.get("uuid") and device.get("uuid"):
        return _bare(row["uuid"]) == _bare(device["uuid"])
    bus = visible.bus_key(row.get("pci"))
    return bool(bus) and not row.get("slice_of") and bus == visible.bus_key(device.get("pci"))


def _complete(row: dict[str, Any], device: dict[str, Any] | None) -> None:
    """Fill what NVML does not tell from the very same device's CUDA fields, then memory from the host's."""
    reasons = dict(row.get("reasons", {}))
    for field in ("name", "memory_bytes", "sm_count", "compute_capability", "unified_memory", "l2_bytes"):
        if device is not None and row.get(field) is None and device.get(field) is not None:
            row[field] = device[field]
    if device is not None and device.get("sm_count") and not row.get("slice_of"):
        row["sm_count"] = device["sm_count"]  # told, where NVML's is a quotient
    if row.get("memory_bytes") is None and _no_memory_of_its_own(reasons.get("memory_bytes", "")):
        row["memory_bytes"], row["unified_memory"] = details.memory_total("/"), True
    row["reasons"] = {field: why for field, why in reasons.items() if row.get(field, "") is None}


def _no_memory_of_its_own(reason: str) -> bool:
    return SHARED in reason.lower() or "NotSupported" in reason


def _from_cuda(device: dict[str, Any]) -> dict[str, Any]:
    uuid, (name, mark, profile) = device.get("uuid"), (device.get("name") or "").partition(CUT)
    cut = {"name": name, "mig": profile} if mark else {}
    return {**device, **cut, "uuid": f"GPU-{uuid}" if uuid else None, "cuda_index": device["index"], "visible": True}


def _notes(gpus: Sequence[Gpu], strangers: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Sentences on GPUs that programs do not see, or whose number is not known."""
    found = []
    hidden = [str(gpu.index) for gpu in gpus if gpu.visible is False]
    if hidden:
        found.append(f"GPUs {', '.join(hidden)} are hidden from CUDA programs (CUDA_VISIBLE_DEVICES or MIG)")
    if any(gpu.visible is None for gpu in gpus) or (strangers and any(gpu.cuda_index is None for gpu in gpus)):
        found.append("the numbers that CUDA gives the GPUs cannot be told here")
    return tuple(found)


def _gpu(item: dict[str, Any], nodes: Sequence[NumaNode]) -> Gpu:
    values = {name: item.get(name) for name in Gpu._fields if item.get(name) is not None or name in _NEEDED}
    node = _bus_node(item.get("pci"))
    values["numa_node"] = host_node(values["numa_node"] if node is None else node, nodes)
    values["device_id"] = device_id(item)
    gpu: Gpu = from_json(Gpu, values)
    return gpu


_NEEDED = tuple(name for name in Gpu._fields if name not in Gpu._field_defaults)


def device_id(item: dict[str, Any]) -> str | None:
    """Twelve hex digits that equal GPUs, or equal slices of equal GPUs, under one power limit share.

    None where the model, the compute capability, or whether it is a slice and which is unknown: a GPU that cannot be
    told has no tables of its own. Not part of `hardware_id`, which must read the same without a driver.
    """
    model, capability, profile = item.get("name"), item.get("compute_capability"), _profile(item)
    if not model or not capability or profile == UNKNOWN_SLICE:
        return None
    facts = (("model", model), ("capability", capability), ("slice", profile), ("power", item.get("power_limit_w")))
    return short_hash(repr(facts).encode())


UNKNOWN_SLICE = "slice"
"""What `mig` says of a slice whose profile was not told."""


def _profile(item: dict[str, Any]) -> str | None:
    """The profile of a slice, None of a whole GPU; UNKNOWN_SLICE also for a GPU that is cut into who knows what."""
    mig, why = item.get("mig"), dict(item.get("reasons", {})).get("mig", "")
    if mig == "enabled" or (mig is None and (item.get("slice_of") or "permission" in why.lower())):
        return UNKNOWN_SLICE
    return None if mig == "disabled" else mig


def _bus_node(address: str | None) -> int | None:
    """The NUMA node that the kernel gives the device; NVML writes the PCI domain with eight digits, sysfs with four."""
    if not address:
        return None
    domain, _, rest = address.lower().partition(":")
    node = number(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    return node if node is not None and node >= 0 else None


def host_node(node: int | None, nodes: Sequence[NumaNode]) -> int | None:
    """The node with CPUs that is nearest to a GPU's node: a GPU's own memory may be a node without any.

    Args:
        node: the node that the kernel or NVML gave.
        nodes: all NUMA nodes.

    Returns:
        `node` itself when it has CPUs; the only node with CPUs where there is one; None where nothing is known.
    """
    hosts = [n for n in nodes if n.cpus]
    if len(hosts) == 1:
        return hosts[0].id
    at = next((n for n in nodes if n.id == node), None)
    if at is None or at.cpus:
        return None if at is None else at.id
    order = [n.id for n in nodes]
    if len(at.distances) != len(order):
        return None  # distances to nodes that are not there: which is which cannot be told
    return min(hosts, key=lambda n: at.distances[order.index(n.id)]).id if hosts else None
