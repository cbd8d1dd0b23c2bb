"""Makes a context on the first device that is visible and says how many seconds that took; run as a process.

The first call of a program pays this once. The arguments are names of the driver's library. Imports nothing of advisor.
Source: CUDA Driver API, "Primary Context Management".
"""

from __future__ import annotations

import ctypes
import sys
import time


def main(names: list[str]) -> int:
    """Write the seconds, from before the library is loaded until the context is there."""
    begun = time.perf_counter()
    for name in names:
        try:
            cuda = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        return 1
    device, context = ctypes.c_int(), ctypes.c_void_p()
    made = (
        cuda.cuInit(0) == 0
        and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    )
    if not made:
        return 1
    sys.stdout.write(f"{time.perf_counter() - begun}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
