"""A device that is none, for validations: a clock, times from a function, counters from another."""

from __future__ import annotations

from fake import FakeClock, FakeExecutor, fake_machine
from gpu_fixtures import H200

from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.counters import Came
from advisor.kernels.gpu.counts import Counters, Kernel, NoCounters
from advisor.kernels.gpu.profiled import Start
from advisor.kernels.pool import Prepared
from advisor.search.request import Silent
from advisor.validate.device_lab import Lab
from advisor.validate.device_measure import measure_device
from advisor.validate.request import Request

MACHINE = fake_machine(cores=4)._replace(gpus=(H200,))
TOOLS = (("cupy-14.2", "cuda"),)
START = Start("ncu 2025.3", 8.0, 2.0, 0)
FORBIDDEN = NoCounters("the driver lets only administrators read counters", "ask one")


class FakePool(FakeExecutor):
    """An executor with what a validation uses besides."""

    until = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def prepare(self, problem, choices):
        """Everything compiles."""
        self.prepared = list(choices)
        return Prepared(len(self.prepared), 0, 0.0)


def counters(moved=1e9, reductions=0.0):
    """Counters of one kernel."""
    call = Kernel("one", 1e6, moved / 2, moved / 2, 1e6, 1e6, reductions, 0.0, 0.25, 0.5)
    return Counters(call, (call,), 3, "flushed", "ncu 2025.3", 0.1)


class FakeLab:
    """What a run works with.

    Args:
        times: (problem, choice) -> ns of a call.
        statuses: (problem, choice) -> how it ends.
        counted: (problem, choice) -> Counters or NoCounters.
        tried: what comes of an attempt to count.
        interrupt_at: the measurement of forward at which somebody presses Ctrl-C.
    """

    def __init__(self, times=None, statuses=None, counted=None, tried=START, interrupt_at=None):
        self.clock = FakeClock()
        self.pools, self.asked, self.explained, self.limits, self.attempts = {}, [], [], [], []
        self.times = times or (lambda p, c: 10.0 * p.n**2)
        self.statuses = statuses or (lambda p, c: "ok")
        self.counted = counted or (lambda p, c: counters())
        self.tried, self.interrupt_at = tried, interrupt_at

    def open(self, gpu, spec, variants):
        """A pool of this kernel."""
        at = self.interrupt_at if spec.name == "forward" else None
        self.pools[spec.name] = FakePool(self.times, statuses=self.statuses, clock=self.clock, interrupt_at=at)
        return self.pools[spec.name]

    def count(self, sources, asked, limit_s, metrics):
        """What was told for each, by one program that takes a second."""
        assert {problem.kernel for problem, _ in asked} <= {one.spec.name for one in sources}
        if metrics == ncu.CORE:
            self.asked += asked
        else:
            self.explained += asked
        self.limits.append(limit_s)
        self.clock.now += 1.0
        return Came(tuple(self.counted(*one) for one in asked), (START._replace(choices=len(asked)),))

    def attempt(self, limit_s):
        """What was told."""
        self.attempts.append(limit_s)
        return self.tried

    def lab(self):
        """As a validation wants it."""
        return Lab(self.open, TOOLS, self.clock, self.count, self.attempt, lambda: (0.31, 0.29, 0.3), lambda: "")

    def run(self, **asked):
        """Measured."""
        return measure_device(Request(device="cuda:0", **asked), MACHINE, Silent(), self.lab())
