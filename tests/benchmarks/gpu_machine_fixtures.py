"""A device that is none with both kernels of the GPU benchmark on it: decode and the read floor."""

from __future__ import annotations

import gpu_ground
import numpy as np
from fake import fake_machine
from gpu_cells import FLOOR_FOLDER
from gpu_fixtures import H200, FakeDriver
from kernel_race import Deadline

from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.device import machine_of
from advisor.kernels.registry import load_spec, spec
from advisor.search.space import SpaceOptions, Toolchain

MACHINE = machine_of(fake_machine()._replace(gpus=(H200,)), H200)
CUDA = SpaceOptions((Toolchain("cupy-14.2", "cuda", "cuda"),))
FLOOR = spec("read", (FLOOR_FOLDER,))


class TwoKernels(FakeDriver):
    """Computes what is launched: decode, or the sum of the words of k and v."""

    def launch(self, functions, geometry, arrays):
        if functions != ("read_floor",):
            super().launch(functions, geometry, arrays)
            return
        self.launched.append((functions, geometry, [a.ctypes.data for a in arrays]))
        words = sum(int(a.view(np.uint32).sum(dtype=np.uint64)) for a in arrays[:2])
        arrays[2][0] = words % (1 << 24) / (1 << 24)


def ground(driver=None, seconds=300.0):
    """A ground of CUDA variants alone on that device, in this process."""
    found = gpu_ground.arenas(H200, driver or TwoKernels(), ("decode", "read"))
    return gpu_ground.Ground(MACHINE, CUDA, found, Deadline(seconds))


class OneWorker:
    """A worker's process that is none: its bench runs here. Counts how often one is started."""

    begun = 0

    def __init__(self, program, hello):
        OneWorker.begun += 1
        self.alive = True
        self.driver = TwoKernels()
        OneWorker.last = self
        self._own = gpu_ground.Own(Bench(self.driver, load_spec(hello.spec_path), hello.seed))

    def ask(self, message, limit_s):
        return self._own.ask(message, limit_s)

    def ready(self):
        pass

    def kill(self):
        self.alive = False
