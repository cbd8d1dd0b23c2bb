"""Asks NVML for the GPUs and writes one JSON object; run by `advisor.topology.gpu` as a process of its own.

Each field is asked for by itself: what a driver or a permission refuses is null. Imports nothing of advisor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

CORES_PER_SM = {(3, 0): 192, (5, 0): 128, (6, 0): 64, (6, 1): 128, (7, 0): 64, (8, 0): 64, (8, 6): 128}
"""CUDA cores of one multiprocessor, from this compute capability on. Source: CUDA C++ Programming Guide, "Arithmetic
Instructions", one row a compute capability; 8.6 and all later ones so far have 128."""


def tell(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of one NVML call, None when it is refused, unknown or not supported."""
    try:
        answer = function(*arguments)
    except Exception:  # NVML has dozens of error classes, and an old driver lacks symbols
        return None
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def sm_count(cores: int | None, capability: tuple[int, int] | None) -> int | None:
    """Multiprocessors of a GPU with this many CUDA cores."""
    if not cores or not capability:
        return None
    known = [at for at in CORES_PER_SM if at <= tuple(capability)]
    return cores // CORES_PER_SM[max(known)] if known else None


def mig(nvml: Any, handle: Any) -> str | None:
    """`disabled`, the slices in use (`1g.18gb, 2g.35gb`), `enabled` without slices, None where MIG does not exist."""
    mode = tell(nvml.nvmlDeviceGetMigMode, handle)
    if not mode:
        return None
    if not mode[0]:
        return "disabled"
    names = []
    for index in range(tell(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        slice_handle = tell(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        name = tell(nvml.nvmlDeviceGetName, slice_handle) if slice_handle else None
        if name:
            names.append(name.rpartition("MIG ")[2])
    return ", ".join(sorted(names)) or "enabled"


def gpu(nvml: Any, index: int) -> dict[str, Any]:
    """What one GPU tells of itself; `pci` is its bus address as sysfs spells it."""
    handle = tell(nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return {"index": index}
    memory = tell(nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = tell(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    pci = tell(nvml.nvmlDeviceGetPciInfo, handle)
    power = tell(nvml.nvmlDeviceGetPowerManagementLimit, handle)
    bus = getattr(pci, "busId", None)
    return {
        "index": index,
        "uuid": tell(nvml.nvmlDeviceGetUUID, handle),
        "name": tell(nvml.nvmlDeviceGetName, handle),
        "memory_bytes": getattr(memory, "total", None),
        "sm_count": sm_count(tell(nvml.nvmlDeviceGetNumGpuCores, handle), capability),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "numa_node": tell(nvml.nvmlDeviceGetNumaNodeId, handle) if hasattr(nvml, "nvmlDeviceGetNumaNodeId") else None,
        "mig": mig(nvml, handle),
        "power_limit_w": power / 1000 if power else None,
        "pci": (bus.decode() if isinstance(bus, bytes) else bus) if bus else None,
    }


def report(nvml: Any) -> dict[str, Any]:
    """Driver and CUDA versions and all GPUs.

    Args:
        nvml: the `pynvml` module, already initialised, or something with its functions.
    """
    cuda = tell(nvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "driver": tell(nvml.nvmlSystemGetDriverVersion),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "gpus": [gpu(nvml, index) for index in range(tell(nvml.nvmlDeviceGetCount) or 0)],
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
