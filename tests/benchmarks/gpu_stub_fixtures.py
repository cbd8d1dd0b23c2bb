"""A device whose kernels compute nothing: every variant takes the time that a test says."""

from __future__ import annotations

import gpu_ground
from gpu_cells import known_of
from gpu_machine_fixtures import CUDA, MACHINE
from kernel_race import Deadline

from advisor.kernels.registry import spec
from advisor.records import Measurement, pairs
from advisor.search.space import SpaceOptions, Toolchain

ALL = SpaceOptions((*CUDA.compilers, *(Toolchain(f"{name}-1", "cuda", name) for name in ("triton", "torch"))))
"""With tools for variants in Python too, as there are where PyTorch has CUDA."""


class Stub:
    """Stands in the place of a pool. `time_ns(problem, choice)`: None where the choice fails."""

    def __init__(self, time_ns):
        self.time_ns, self.asked = time_ns, []

    def prepare(self, problem, choices):
        pass

    def measure(self, problem, choice, ask):
        self.asked.append((problem, choice))
        found = self.time_ns(problem, choice)
        if found is None:
            return Measurement(problem, choice, "crashed", reason="illegal address")
        wave = tuple(found * (1 + 1e-3 * ((len(self.asked) + i) % 5)) for i in range(ask.samples))
        return Measurement(problem, choice, "ok", wave, conditions=pairs({"after": {"sm_mhz": 1980}}))


def stub_ground(time_ns, *kernels, options=CUDA):
    """A ground of some kernels on that device."""
    found = {name: gpu_ground.Arena(spec(name), known_of(name), Stub(time_ns)) for name in kernels}
    return gpu_ground.Ground(MACHINE, options, found, Deadline(300.0))
