"""What a validation on a device works with: pools, tools, a clock, counters, cold starts. Tests put others in."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from advisor.kernels.executor import Ask
from advisor.kernels.gpu import memory, ncu
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.counters import Came, Source, Wanted, attempt, count_kernels
from advisor.kernels.gpu.counts import NoCounters
from advisor.kernels.gpu.messages import COMPILERS
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.profiled import Start
from advisor.kernels.gpu.space import Tools
from advisor.kernels.gpu.tools import needed_tools
from advisor.kernels.pool import Prepared
from advisor.kernels.process import run as run_program
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Choice, Gpu, Measurement, Problem
from advisor.topology.cuda_child import LIBRARIES
from advisor.validate import cold_child
from advisor.validate.device_records import Count, Grid, Program
from advisor.validate.run import Pool

COLD_STARTS = 3
"""Processes that make a context, each a cold start."""

COLD_LIMIT_S = 20.0

Counting = Callable[[Sequence[Source], Sequence[Wanted], float, Sequence[ncu.Metric]], Came]
"""Counts what choices of some kernels move on their problems, within so many seconds, by these metrics."""


class PlainPool(GpuPool):
    """A pool whose choices are checked on the problem that is timed alone: `advisor verify` does the rest."""

    until = float("inf")

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        """As GpuPool.measure, without edge problems and other draws of inputs."""
        return self._measure(problem, choice, ask, "normal")

    def prepare(self, problem: Problem, choices: Iterable[Choice]) -> Prepared:
        """As GpuPool.prepare, some at a time, none begun after `until` on the monotonic clock."""
        listed, done = list(choices), []
        for first in range(0, len(listed), COMPILERS):
            if time.monotonic() > self.until:
                break
            done.append(super().prepare(problem, listed[first : first + COMPILERS]))
        return Prepared(sum(p.ready for p in done), sum(p.failed for p in done), sum(p.seconds for p in done))


class Lab(NamedTuple):
    """What a run works with; tests put others in.

    Attributes:
        open_pool: makes the executor of a kernel, a context manager.
        tools: (name, language) of what compiles.
        clock: seconds.
        counting: counts choices.
        attempt: whether anything can be counted, found out within so many seconds, and what a start takes.
        cold_starts: seconds of some cold starts.
        others: who else uses the device now, in words.
    """

    open_pool: Callable[[Gpu, KernelSpec, Sequence[Variant]], Pool]
    tools: Tools
    clock: Callable[[], float]
    counting: Counting
    attempt: Callable[[float], Start | NoCounters]
    cold_starts: Callable[[], tuple[float, ...]]
    others: Callable[[], str]


def lab_of(gpu: Gpu) -> Lab:
    """The real one.

    Raises:
        BadInput: no CuPy.
    """
    tools = [(tool.name, tool.language) for tool in needed_tools()]
    return Lab(
        PlainPool,
        tools,
        time.monotonic,
        partial(count_kernels, gpu),
        partial(attempt, gpu),
        lambda: cold_starts(gpu.uuid or ""),
        lambda: memory.sentence(memory.state(gpu)),
    )


def cold_starts(uuid: str) -> tuple[float, ...]:
    """Seconds that a context takes, in a few processes one after another; those that failed are left out."""
    command = [sys.executable, "-P", cold_child.__file__, *LIBRARIES]
    variables = environment({}, uuid)
    outcomes = [run_program(command, COLD_LIMIT_S, variables=variables) for _ in range(COLD_STARTS)]
    return tuple(float(text) for status, text in outcomes if status == 0)


class Kept:
    """What a run on a device has beside what every run has.

    `tried`: what came of the attempt to count, None where there was none.
    """

    def __init__(self) -> None:
        self.grids: list[Grid] = []
        self.counts: list[Count] = []
        self.waits: list[Count] = []
        self.tried: Start | NoCounters | None = None
        self.programs: list[Program] = []
        self.cold_start_s: tuple[float, ...] = ()
        self.uncounted = self.remedy = ""
