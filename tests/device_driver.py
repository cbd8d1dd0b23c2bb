"""What stands in for CuPy in the worker of a made-up GPU: right results by numpy, times by a formula."""

import os
import time

from gpu_fixtures import FakeDriver

LANES = 132 * 64 * 32
"""Threads that run at once."""


class MadeUpDriver(FakeDriver):
    """Takes `MADE_UP_CALL_S` for each sample where that is set, so that a test can interrupt it."""

    def launch(self, functions, geometry, arrays):
        super().launch(functions, geometry, arrays)
        self.last = geometry, sum(one.size for one in arrays)

    def time_ns(self, replay, times):
        time.sleep(float(os.environ.get("MADE_UP_CALL_S", "0")))
        return times * replay() * call_ns(*self.last)


def call_ns(geometry, elements):
    """Launches, the operands over the threads there are, merging what the blocks have."""
    blocks = sum(x * y * z for (x, y, z), _, _ in geometry.extents)
    threads = min(LANES, max(x * y * z * block for (x, y, z), block, _ in geometry.extents))
    return 2000.0 * len(geometry.extents) + 20.0 * elements / threads + 4.0 * blocks
