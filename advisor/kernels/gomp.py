"""The frame of a library call: pin, count and touch with the library's own OpenMP team, without a compiler.

A library brings its own libgomp, and the team that it runs on belongs to the thread that calls it. So a region entered
from that thread with as many threads, through GOMP_parallel of that very file, is run by the threads that will run the
library's calls. It does what frame/frame.c does for compiled variants. Regions are entered here between samples only:
the body is Python, so threads take turns at it (30 to 200 us a thread), and none of it is timed.

Source: GCC's libgomp ABI, "Implementing PARALLEL construct": GOMP_parallel(fn, data, num_threads, flags).
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Sequence

from advisor.errors import BuildError

RUNTIME = "libgomp"
"""The OpenMP runtime of the libraries whose calls are variants."""

_FILE = re.compile(r"/(lib(?:gomp|omp|iomp5))\b[^/]*\.so[^/]*$", re.M)
_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Frame:
    """Pin, count and touch through one loaded libgomp.

    A foreign call lets go of the interpreter's lock and a callback takes it, on threads that Python never saw too; what
    a callback raises would be lost, so bodies do nothing that can fail.
    """

    def __init__(self, path: str) -> None:
        """Take the functions of the libgomp in a file, which is loaded already. Raises OSError, AttributeError."""
        library, self._libc = ctypes.CDLL(path), ctypes.CDLL(None)
        self._thread_num, self._num_threads = library.omp_get_thread_num, library.omp_get_num_threads
        self._parallel = library.GOMP_parallel
        self._parallel.restype = None
        self._parallel.argtypes = (_Body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)

    def _region(self, threads: int, body: Callable[[int], None]) -> None:
        """Run a body in every thread of a team, with the thread's number."""
        called = _Body(lambda _: body(self._thread_num()))
        self._parallel(called, None, threads, 0)

    def pin(self, threads: int, cpus: Sequence[int] | None, mask: Sequence[int]) -> int:
        """Bind thread i to cpus[i], or every thread to the mask where cpus is None; returns how many could not be."""
        failed = 0
        for index, tid in enumerate(self.team(threads)[0]):
            try:
                os.sched_setaffinity(tid, mask if cpus is None else (cpus[index],))
            except (OSError, ValueError, OverflowError):
                failed += 1
        return failed

    def team(self, threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Thread ids of the team that runs now, and the CPU each is on."""
        seen: dict[int, tuple[int, int]] = {}

        def note(index: int) -> None:
            seen[index] = threading.get_native_id(), self._libc.sched_getcpu()

        self._region(threads, note)
        return tuple(seen[i][0] for i in sorted(seen)), tuple(seen[i][1] for i in sorted(seen))

    def touch(self, spans: Sequence[tuple[int, int]], threads: int) -> None:
        """First touch: thread i zeroes the i-th of equal parts of each (address, bytes)."""

        def zero(index: int) -> None:
            team = self._num_threads()
            for address, size in spans:
                first, last = size // team * index, size if index == team - 1 else size // team * (index + 1)
                ctypes.memset(address + first, 0, last - first)

        self._region(threads, zero)


def load() -> Frame:
    """The frame of the library that was imported into this process.

    Raises:
        BuildError: it has brought no libgomp along, or there is another OpenMP runtime too, so that placements might be
            applied to a team that the library does not use.
    """
    found = files()
    if [name for _, name in found] != [RUNTIME]:
        raise BuildError(
            "a library must run on an OpenMP runtime whose threads can be pinned, and on no other",
            got=", ".join(sorted(f"{name} ({os.path.basename(path)})" for path, name in found)) or "none",
            allowed=RUNTIME,
        )
    try:
        return Frame(found[0][0])
    except (OSError, AttributeError) as error:
        raise BuildError("the library's OpenMP runtime must be usable", got=str(error)) from error


def files() -> tuple[tuple[str, str], ...]:
    """(file, name) of every OpenMP runtime in this process; two copies of one runtime, from two files, are two."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            found = [_FILE.search(line) for line in file]
    except OSError:
        return ()
    return tuple({match.string.split(maxsplit=5)[5].strip(): match[1] for match in found if match}.items())
