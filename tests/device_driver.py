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
        self.geometry = geometry

    def time_ns(self, replay, times):
        time.sleep(float(os.environ.get("MADE_UP_CALL_S", "0")))
        return times * replay() * call_ns(self.geometry)


def call_ns(geometry):
    """Launch, the work over the threads there are, merging the splits."""
    heads, n, width = geometry.numbers[1], geometry.numbers[4], geometry.numbers[3]
    blocks = geometry.grid[0] * geometry.grid[1]
    threads = min(LANES, blocks * geometry.block)
    return 2000.0 + 40.0 * heads * n * width / threads + 4.0 * blocks
