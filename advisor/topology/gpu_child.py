"""Asks NVML for the GPUs and writes one JSON object; run by `advisor.topology.gpu` as a process of its own.

Each field is asked for by itself: what a driver or a permission refuses is null, and `reasons` says why. A GPU that is
cut into slices (MIG) is told slice by slice, each with its own sizes. Imports nothing of advisor.
"""

from __future__ import annotations

import json
import sys
from typing import Any

CORES_PER_SM = {(3, 0): 192, (5, 0): 128, (6, 0): 64, (6, 1): 128, (7, 0): 64, (8, 0): 64, (8, 6): 128}
"""CUDA cores of one multiprocessor, from this compute capability on. Source: CUDA C++ Programming Guide, "Arithmetic
Instructions", one row a compute capability; 8.6 and all later ones so far have 128."""

Reasons = dict[str, str]
"""Field -> why it is unknown; filled by `ask`."""


def ask(nvml: Any, reasons: Reasons, field: str, name: str, *arguments: Any) -> Any:
    """The answer of one NVML call, text decoded; None when it is refused or missing, with the reason noted.

    Args:
        nvml: the module, or something with its functions.
        reasons: gets the reason under `field`.
        field: what the answer is for.
        name: the function's name.
        arguments: its arguments.
    """
    try:
        answer = getattr(nvml, name)(*arguments)
    except Exception as error:  # NVML has dozens of error classes, and an old driver lacks symbols
        reasons[field] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return None
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def whole(value: Any) -> int | None:
    """A count of at least one, None for everything else: a driver that does not know may say 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def sm_count(cores: int | None, capability: tuple[int, int] | None) -> int | None:
    """Multiprocessors of a GPU with this many CUDA cores."""
    if not cores or not capability:
        return None
    known = [at for at in CORES_PER_SM if at <= tuple(capability)]
    return cores // CORES_PER_SM[max(known)] if known else None


def slices(nvml: Any, handle: Any, reasons: Reasons) -> list[Any] | None:
    """Handles of the slices in use; empty where MIG is on without any, None where it is off or does not exist."""
    mode = ask(nvml, reasons, "mig", "nvmlDeviceGetMigMode", handle)
    if not mode or not mode[0]:
        return None
    count = ask(nvml, reasons, "mig", "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = (ask(nvml, {}, "mig", "nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count))
    return [one for one in found if one is not None]


def gpu(nvml: Any, index: int) -> list[dict[str, Any]]:
    """What one GPU tells of itself, one row; or one row a slice where it is cut into slices.

    `pci` is its bus address, `mig` the profile of a slice, `enabled` (MIG on, no slice), `disabled`, or None.
    """
    reasons: Reasons = {}
    handle = ask(nvml, reasons, "index", "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return [{"index": index, "reasons": reasons}]
    cut = slices(nvml, handle, reasons)
    whole_one = _whole_gpu(nvml, handle, index, reasons)
    if cut:
        return [_slice(nvml, one, whole_one) for one in cut]
    state = "enabled" if cut is not None else None if "mig" in reasons else "disabled"
    return [{**whole_one, "mig": state}]


def _whole_gpu(nvml: Any, handle: Any, index: int, reasons: Reasons) -> dict[str, Any]:
    memory = ask(nvml, reasons, "memory_bytes", "nvmlDeviceGetMemoryInfo", handle)
    capability = ask(nvml, reasons, "compute_capability", "nvmlDeviceGetCudaComputeCapability", handle)
    cores = whole(ask(nvml, reasons, "sm_count", "nvmlDeviceGetNumGpuCores", handle))
    power = whole(ask(nvml, reasons, "power_limit_w", "nvmlDeviceGetPowerManagementLimit", handle))
    bus = getattr(ask(nvml, reasons, "pci", "nvmlDeviceGetPciInfo", handle), "busId", None)
    return {
        "index": index,
        "uuid": ask(nvml, reasons, "uuid", "nvmlDeviceGetUUID", handle),
        "name": ask(nvml, reasons, "name", "nvmlDeviceGetName", handle),
        "memory_bytes": whole(getattr(memory, "total", None)),
        "sm_count": sm_count(cores, capability),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "numa_node": ask(nvml, reasons, "numa_node", "nvmlDeviceGetNumaNodeId", handle),
        "power_limit_w": power / 1000 if power else None,
        "pci": (bus.decode("utf-8", "replace") if isinstance(bus, bytes) else bus) or None,
        "reasons": reasons,
    }


def _slice(nvml: Any, handle: Any, parent: dict[str, Any]) -> dict[str, Any]:
    """A slice: its own name and sizes; board, bus and power are those of the GPU it is cut from."""
    reasons = {field: why for field, why in parent["reasons"].items() if parent.get(field, "") is None}
    for own in ("memory_bytes", "sm_count", "name", "uuid"):
        reasons.pop(own, None)
    name = ask(nvml, reasons, "name", "nvmlDeviceGetName", handle) or ""
    board, _, profile = name.rpartition("MIG ")
    sizes = ask(nvml, reasons, "sm_count", "nvmlDeviceGetAttributes_v2", handle)
    memory = ask(nvml, reasons, "memory_bytes", "nvmlDeviceGetMemoryInfo", handle)
    megabytes = whole(getattr(sizes, "memorySizeMB", None))
    return {
        **parent,
        "uuid": ask(nvml, reasons, "uuid", "nvmlDeviceGetUUID", handle),
        "name": board.strip() or parent["name"],
        "memory_bytes": whole(getattr(memory, "total", None)) or (megabytes << 20 if megabytes else None),
        "sm_count": whole(getattr(sizes, "multiprocessorCount", None)),
        "mig": profile.strip() or "slice",
        "slice_of": parent["uuid"],
        "reasons": reasons,
    }


def report(nvml: Any) -> dict[str, Any]:
    """Driver and CUDA versions and all GPUs.

    Args:
        nvml: the `pynvml` module, already initialised, or something with its functions.
    """
    reasons: Reasons = {}
    cuda = whole(ask(nvml, reasons, "cuda", "nvmlSystemGetCudaDriverVersion_v2"))
    count = ask(nvml, reasons, "count", "nvmlDeviceGetCount")
    rows = [row for index in range(count or 0) for row in gpu(nvml, index)]
    return {
        "driver": ask(nvml, reasons, "driver", "nvmlSystemGetDriverVersion"),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "gpus": rows,
        **({"error": reasons["count"]} if count is None else {}),
    }


def main() -> None:
    """Write the report, or an object with the reason why there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # no module, no driver, a driver of another version: all end in "no GPUs, because"
        answer: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
    else:
        answer = report(pynvml)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
