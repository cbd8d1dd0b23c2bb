"""The stolen-core regime: the same choice beside one busy neighbour.

A choice that wins on an idle machine can be a thousand times slower when somebody else takes one core: its other
threads spin until the scheduler gives the core back (docs/traps/spinning-and-a-stolen-core.md). Percentiles hide it, as
most calls are fast and a few stalls take most of the time; so here no sample is rejected and the mean counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from advisor.kernels.executor import Ask
from advisor.records import Machine
from advisor.topology.array import live, ravel

WINDOW_S, QUICK_WINDOW_S = 1.0, 0.3
"""Time in the kernel of one measurement. Shorter than some time slices of the scheduler, and no stall would be seen."""

SAMPLE_S = 0.02
"""One sample: several time slices, so that its mean holds stalls in proportion."""

_BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile os.getppid() > 1: pass"


def neighbour_cpu(machine: Machine) -> int:
    """The CPU that the neighbour takes: the last one in reach, which a choice of all cores but one leaves free."""
    return ravel(live(machine.array, machine.allowed_cpus))[-1]


@contextmanager
def neighbour(cpu: int) -> Iterator[None]:
    """One busy process pinned to `cpu`, for as long as the block runs. It ends with this process too."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    busy = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BUSY, str(cpu)], stdout=subprocess.PIPE, env=environment
    )
    try:
        if busy.stdout is not None:
            busy.stdout.readline()  # it runs and is pinned
        yield
    finally:
        busy.kill()
        busy.communicate()


def window(quick: bool, limit_s: float) -> Ask:
    """How much to measure: windows over a second (a third of one when quick), nothing rejected."""
    seconds = QUICK_WINDOW_S if quick else WINDOW_S
    return Ask(round(seconds / SAMPLE_S), limit_s, SAMPLE_S, quiet=False)
