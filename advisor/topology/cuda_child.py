"""Asks the CUDA driver for its devices and writes one JSON object; run by `advisor.topology.gpu` as a process.

CUDA numbers devices in its own order and sees only those that CUDA_VISIBLE_DEVICES names, so this is the one witness
of which device a program gets as number i. No context is created. Imports nothing of advisor.

Source: CUDA Driver API, "Device Management"; the numbers are of CUdevice_attribute.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from typing import Any

SM_COUNT, MAJOR, MINOR, INTEGRATED, L2 = 16, 75, 76, 18, 38
LIBRARIES = ("libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1")


def _load() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _attribute(cuda: Any, device: int, number: int) -> int | None:
    value = ctypes.c_int()
    return value.value if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0 else None


def _uuid(cuda: Any, device: int) -> str | None:
    """`GPU-...` or, for a slice, `MIG-...`: the later function tells a slice's own."""
    found = (ctypes.c_ubyte * 16)()
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if hasattr(cuda, name) and getattr(cuda, name)(ctypes.byref(found), device) == 0:
            return str(uuid.UUID(bytes=bytes(found)))
    return None


def device(cuda: Any, index: int) -> dict[str, Any]:
    """What one device tells of itself; None for what it does not tell. `uuid` has no GPU- or MIG- in front."""
    name, bus, total = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32), ctypes.c_size_t()
    handle = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(handle), index) != 0:
        return {"index": index}
    at = handle.value
    major, minor = _attribute(cuda, at, MAJOR), _attribute(cuda, at, MINOR)
    shared = _attribute(cuda, at, INTEGRATED)
    return {
        "index": index,
        "uuid": _uuid(cuda, at),
        "name": name.value.decode("utf-8", "replace") if cuda.cuDeviceGetName(name, len(name), at) == 0 else None,
        "pci": bus.value.decode("ascii", "replace") if cuda.cuDeviceGetPCIBusId(bus, len(bus), at) == 0 else None,
        "memory_bytes": (total.value or None) if cuda.cuDeviceTotalMem_v2(ctypes.byref(total), at) == 0 else None,
        "sm_count": _attribute(cuda, at, SM_COUNT) or None,
        "l2_bytes": _attribute(cuda, at, L2) or None,
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "unified_memory": None if shared is None else bool(shared),
    }


def main() -> None:
    """Write the devices in CUDA's order, or an object with the reason why there are none."""
    cuda, count = _load(), ctypes.c_int()
    if cuda is None:
        answer: dict[str, Any] = {"error": "libcuda.so.1 cannot be loaded"}
    else:
        code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
        # 100: CUDA_ERROR_NO_DEVICE, what an empty CUDA_VISIBLE_DEVICES gives
        answer = {"devices": [device(cuda, index) for index in range(count.value)]}
        answer = answer if code in (0, 100) else {"error": f"CUDA error {code}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
