"""Tries what a container often forbids, in a process of its own, and writes one JSON object of words.

    python tries_child.py [NODE]        a NUMA node whose memory may be used; 0 when left out

Each word is `allowed`, or says what the kernel answered. A filter that kills for a forbidden call kills this process
only. Imports nothing of advisor. Source of numbers: Linux arch/*/kernel/syscalls, include/uapi/linux/mempolicy.h and
perf_event.h.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import struct
import sys
from typing import Any

GENERIC = {"mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237, "perf_event_open": 241}
NUMBERS = {
    "x86_64": {"mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "perf_event_open": 298},
    "ppc64le": {"mbind": 259, "get_mempolicy": 260, "set_mempolicy": 261, "perf_event_open": 319},
    "s390x": {"mbind": 268, "get_mempolicy": 269, "set_mempolicy": 270, "perf_event_open": 331},
    **dict.fromkeys(("aarch64", "riscv64", "loongarch64"), GENERIC),
}
BIND, INTERLEAVE, DEFAULT, OF_ADDRESS = 2, 3, 0, 2
BITS = 4096
EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 5, 1 << 6


class Kernel:
    """System calls by name. `call` gives (result, errno name or empty)."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self.syscall = ctypes.CDLL(None, use_errno=True).syscall

    def call(self, name: str, *arguments: Any) -> tuple[int, str]:
        """One call; an integer argument is passed as a long."""
        given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
        result = self.syscall(ctypes.c_long(self.numbers[name]), *given)
        return result, "" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def nodes(node: int) -> Any:
    """A node mask with one node."""
    mask = (ctypes.c_ulong * (BITS // (8 * ctypes.sizeof(ctypes.c_ulong))))()
    width = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask[node // width] = 1 << node % width
    return mask


def read_back(kernel: Kernel, address: Any, flags: int) -> int | None:
    """The mode of the policy in force, None where it cannot be asked."""
    mode = ctypes.c_int(-1)
    result, _ = kernel.call("get_mempolicy", ctypes.byref(mode), None, 0, address, flags)
    return mode.value if result == 0 else None


def word(failed: str, wanted: int, found: int | None) -> str:
    """`allowed` only where the kernel took the policy and says so itself."""
    if failed:
        return f"refused ({failed})"
    return "allowed" if found == wanted else f"taken but not in force (mode {found})"


def try_set_mempolicy(kernel: Kernel, node: int) -> str:
    """Bind, then interleave, this process; put back the default."""
    for mode in (BIND, INTERLEAVE):
        _, failed = kernel.call("set_mempolicy", mode, nodes(node), BITS)
        said = word(failed, mode, read_back(kernel, None, 0))
        if said != "allowed":
            return said
    kernel.call("set_mempolicy", DEFAULT, None, 0)
    return "allowed"


def try_mbind(kernel: Kernel, node: int) -> str:
    """Bind one fresh page."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    view = (ctypes.c_char * mmap.PAGESIZE).from_buffer(page)
    address = ctypes.c_void_p(ctypes.addressof(view))
    _, failed = kernel.call("mbind", address, mmap.PAGESIZE, BIND, nodes(node), BITS, 0)
    return word(failed, BIND, read_back(kernel, address, OF_ADDRESS))


def try_counters(kernel: Kernel) -> str:
    """Open a counter of this process' own cycles in user mode."""
    size = 64
    flags = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    attributes = struct.pack("=IIQQQQQ", 0, size, 0, 0, 0, 0, flags).ljust(size, b"\0")
    handle, failed = kernel.call("perf_event_open", ctypes.c_char_p(attributes), 0, -1, -1, 0)
    if failed:
        return f"refused ({failed})"
    os.close(handle)
    return "allowed"


def main() -> None:
    """Try all, write one object."""
    numbers = NUMBERS.get(os.uname().machine)
    if numbers is None:
        json.dump({}, sys.stdout)
        return
    kernel, node = Kernel(numbers), int(sys.argv[1]) if len(sys.argv) > 1 else 0
    told = {
        "set_mempolicy": try_set_mempolicy(kernel, node),
        "mbind": try_mbind(kernel, node),
        "counters": try_counters(kernel),
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
