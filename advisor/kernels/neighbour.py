"""A busy neighbour: one process that keeps one CPU busy, so that its effect on a kernel can be measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
while os.getppid() == int(sys.argv[2]):
    for _ in range(100000):
        pass
"""


@contextmanager
def neighbour(cpu: int) -> Iterator[None]:
    """One busy process pinned to `cpu`, for as long as the block runs. It ends with this process too."""
    command = [sys.executable, "-I", "-S", "-c", _BUSY, str(cpu), str(os.getpid())]
    busy = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        if busy.stdout is not None:
            busy.stdout.readline()  # it runs and is pinned
        yield
    finally:
        busy.kill()
        busy.communicate()
