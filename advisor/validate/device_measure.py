"""Measures on a device: the chain's variants in turns, decode, layers, the block, a cold start, counters. Judges
nothing.

Times never wait for counters, which come last. What does not fit into the budget is left out and named; an interrupt
ends the run, and what was measured is kept.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import NamedTuple

from advisor.kernels.executor import Ask
from advisor.kernels.gpu import memory, ncu
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.counters import LIMIT_S, MORE_TIME, Counted, count_all
from advisor.kernels.gpu.counts import NoCounters, predicted
from advisor.kernels.gpu.messages import COMPILERS
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import Tools
from advisor.kernels.gpu.tools import needed_tools
from advisor.kernels.pool import Prepared
from advisor.kernels.process import run as run_program
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Choice, Gpu, Machine, Measurement, Problem, pairs
from advisor.search.request import Progress
from advisor.search.space import SpaceOptions
from advisor.topology.cuda_child import LIBRARIES
from advisor.validate import cold_child
from advisor.validate.device_plan import (
    CHAIN,
    COUNT_START_S,
    ON_DEVICE,
    Wanted,
    check_device_request,
    device_cells,
    device_kernels,
    device_problems,
    grids,
    own,
    to_count,
    worth_counting,
)
from advisor.validate.device_records import Count, Device, DeviceMeasured, Grid
from advisor.validate.plan import Cell
from advisor.validate.request import Request, check_shape
from advisor.validate.run import MEASURED_SHARE, Found, Job, Phase, Pool, Run, in_turn
from advisor.validate.sweep import sweep

READY_SHARE = 0.4
"""Of the budget, until when workers are waited for that make contexts, compile, and make what checking takes."""

COLD_STARTS = 3
"""Processes that make a context, each a cold start."""

COLD_LIMIT_S = 20.0

CHAIN_WEIGHT = 12.0
"""Of the chain and the counters, beside 1 for each other kernel, of which calls take microseconds."""

COUNT_SHARE, MOST_COUNT_S = 0.4, 90.0
"""Of the time for both, what is kept for counters: a share, and so long at most."""

UNLIMITED_S = 1e9

Counting = Callable[[KernelSpec, Sequence[Variant], Sequence[tuple[Problem, Choice]], float], Sequence[Counted]]
"""Counts what choices move on their problems, within so many seconds a program."""


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
        can_count: whether there is anything to count with; else counting only says that there is not.
        cold_starts: seconds of some cold starts.
        others: who else uses the device now, in words.
    """

    open_pool: Callable[[Gpu, KernelSpec, Sequence[Variant]], Pool]
    tools: Tools
    clock: Callable[[], float]
    counting: Counting
    can_count: bool
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
        partial(count_all, gpu),
        ncu.find() is not None,
        lambda: cold_starts(gpu.uuid or ""),
        lambda: memory.sentence(memory.state(gpu)),
    )


def cold_starts(uuid: str) -> tuple[float, ...]:
    """Seconds that a context takes, in a few processes one after another; those that failed are left out."""
    command = [sys.executable, "-P", cold_child.__file__, *LIBRARIES]
    variables = environment({}, uuid)
    outcomes = [run_program(command, COLD_LIMIT_S, variables=variables) for _ in range(COLD_STARTS)]
    return tuple(float(text) for status, text in outcomes if status == 0)


def device_of(gpu: Gpu) -> Device:
    """What the judges must know of it."""
    return Device(gpu.name, gpu.sm_count, gpu.compute_capability, gpu.memory_bytes, gpu.l2_bytes)


class Kept:
    """What a run on a device has beside what every run has."""

    def __init__(self) -> None:
        self.grids: list[Grid] = []
        self.counts: list[Count] = []
        self.cold_start_s: tuple[float, ...] = ()
        self.uncounted = self.remedy = ""


def measure_device(request: Request, machine: Machine, progress: Progress, lab: Lab) -> DeviceMeasured:
    """Measure what a request asks for on a device, as far as its budget goes.

    Args:
        request: kernels, sizes, dtype, shape, budget.
        machine: that of the device.
        progress: told how it goes.
        lab: what is worked with.

    Raises:
        BadInput: a size, shape or dtype that makes no sense, threads, or no CUDA variant.
    """
    begun, gpu = lab.clock(), machine.gpus[0]
    check_device_request(request)
    kernels = device_kernels(request)
    check_shape(request._replace(kernels=kernels))
    plans = [(kernel, *device_problems(request, kernel)) for kernel in kernels]
    end = begun + MEASURED_SHARE * request.budget_s
    options = SpaceOptions(())
    found, kept, others = Found(), Kept(), lab.others()
    run = Run(machine, options, {}, request.budget_s, progress, lab.clock, found, {}, {}, {}, end, ON_DEVICE)
    interrupted = False
    try:
        kept.cold_start_s = lab.cold_starts()
        with contextlib.ExitStack() as stack:
            jobs = [
                Job(kernel, spec, listed, asked, stack.enter_context(lab.open_pool(gpu, spec, listed)))
                for kernel, spec, asked in plans
                for listed in [own(kernel, request.kernel_dirs)]
            ]
            _phases(run, _ready(run, jobs, lab, kept), lab, kept)
    except KeyboardInterrupt:
        interrupted = True
        found.missing.append("interrupted: what comes after that was not measured")
    return DeviceMeasured(
        device_of(gpu),
        tuple(found.series),
        tuple(kept.grids),
        tuple(kept.counts),
        kept.uncounted,
        kept.remedy,
        kept.cold_start_s,
        others,
        tuple(found.missing),
        interrupted,
        lab.clock() - begun,
        pairs({**dict(machine.environment), "compiler": ", ".join(name for name, _ in lab.tools)}),
    )


def _phases(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept) -> None:
    """What is quick, then the chain, which has the rest of the time together with the counters."""
    quick = [job for job in jobs if job.kernel not in CHAIN]
    phases: list[Phase] = [(1.0, partial(sweep, run, [job])) for job in quick]
    in_turn(run, [*phases, (CHAIN_WEIGHT, partial(_chain, run, jobs, lab, kept))])


def _chain(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, until: float) -> None:
    """Time the chain, count, then time what there was no time for, if counting has left some."""
    deep = [job for job in jobs if job.kernel in CHAIN]
    counted = [job for job in jobs if job.kernel in (*CHAIN, "block")]
    reserve_s = min(COUNT_SHARE * (until - run.clock()), MOST_COUNT_S) if counted and lab.can_count else 0.0
    if deep:
        sweep(run, deep, until - reserve_s)
    if counted:
        _count(run, counted, lab, kept, until)
    run.progress.seconds_left(max(0.0, run.end - run.clock()))
    _again(run, jobs, until)


def _again(run: Run, jobs: Sequence[Job], until: float) -> None:
    """Sweep the problems of which nothing was measured for want of time."""
    done = {one.problem for one in run.found.series}
    left = [job._replace(problems=tuple(p for p in job.problems if p not in done)) for job in jobs]
    left = [job for job in left if job.problems]
    if left and run.clock() < until:
        late = tuple(f"{job.kernel} n={problem.n}: no time" for job in left for problem in job.problems)
        run.found.missing[:] = [words for words in run.found.missing if not words.startswith(late)]
        sweep(run, left, until)


# --- getting ready ---


def _ready(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept) -> list[Job]:
    """List the cells; workers start and compile side by side. Those jobs whose worker was ready in time."""
    run.progress.stage("contexts and compiling", len(jobs))
    run.progress.seconds_left(max(0.0, run.end - run.clock()))
    until = run.clock() + READY_SHARE * run.budget_s
    gpu = run.machine.gpus[0]
    crew = ThreadPoolExecutor(max(1, len(jobs)))
    waited: dict[Future[None], Job] = {}
    try:
        for job in jobs:
            for problem in job.problems:
                run.wanted[problem] = device_cells(gpu, job.spec, job.variants, problem, lab.tools)
                kept.grids += grids(job.spec, problem, run.wanted[problem])
            waited[crew.submit(_prepared, run, job, until)] = job
        ready = _awaited(run, waited, until)
    finally:
        crew.shutdown(wait=False, cancel_futures=True)
    late = [job for job in jobs if job not in ready]
    run.found.missing += [f"{job.kernel}: no time, its programs were not compiled yet" for job in late]
    return [job for job in jobs if job in ready]


def _awaited(run: Run, waited: dict[Future[None], Job], until: float) -> list[Job]:
    ready = []
    with contextlib.suppress(TimeoutError):
        for future in as_completed(waited, max(0.0, until - run.clock())):
            future.result()
            ready.append(waited[future])
            run.progress.advance(waited[future].kernel)
    return ready


def _prepared(run: Run, job: Job, until: float) -> None:
    """Compile the programs of all problems, each once."""
    job.pool.until = until
    largest = max(job.problems, key=lambda problem: len(run.wanted[problem]))
    job.pool.prepare(largest, [one.choice for one in run.wanted[largest]])
    job.pool.until = run.end


# --- counting ---


def _count(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, until: float) -> None:
    """Count each kernel in a program of its own, which gets the part of what is left that it is expected to need."""
    seconds = min(until - run.clock(), MOST_COUNT_S) if lab.can_count else UNLIMITED_S
    named = {job.kernel: job for job in jobs if job.kernel in worth_counting([job.kernel for job in jobs], seconds)}
    run.found.missing += [f"counters of {job.kernel}: no time" for job in jobs if job.kernel not in named]
    own_cells = {problem: run.wanted[problem] for job in named.values() for problem in job.problems}
    seconds -= COUNT_START_S * len(named)
    wanted, left_out = to_count(own_cells, run.found.series, max(0.0, seconds))
    costs = {
        kernel: COUNT_START_S + sum(w.cost_s for w in wanted if w.problem.kernel == kernel)
        for kernel in named
        if any(w.problem.kernel == kernel for w in wanted)
    }
    run.found.missing += [f"counters of {group}: no time" for group in left_out]
    run.progress.stage("counters", len(costs))
    while costs:
        kernel = min(costs, key=lambda name: costs[name])
        limit_s = max(0.0, until - run.clock()) * costs[kernel] / sum(costs.values())
        del costs[kernel]
        _count_kernel(run, named[kernel], [w for w in wanted if w.problem.kernel == kernel], lab, kept, limit_s)
        run.progress.advance(kernel)


def _count_kernel(run: Run, job: Job, wanted: Sequence[Wanted], lab: Lab, kept: Kept, limit_s: float) -> None:
    """Count some cells of one kernel, the cheapest first: what a program has no time for is told without figures."""
    if lab.can_count and limit_s < COUNT_START_S:
        run.found.missing.append(f"counters of {job.kernel}: no time ({limit_s:.0f} s)")
        return
    ordered = sorted(wanted, key=lambda one: one.cost_s)
    asked = [(one.problem._replace(regime="cold"), one.cell.choice) for one in ordered]
    outcomes = lab.counting(job.spec, job.variants, asked, min(LIMIT_S, limit_s) if lab.can_count else LIMIT_S)
    failed: dict[str, list[str]] = {}
    for one, outcome in zip(ordered, outcomes, strict=True):
        kept.counts.append(_counted(job, one.problem, one.cell, outcome))
        if isinstance(outcome, NoCounters):
            if outcome.everywhere and outcome.remedy != MORE_TIME:
                kept.uncounted, kept.remedy = outcome.reason, outcome.remedy
            else:
                failed.setdefault(outcome.reason, []).append(f"{one.cell.name} n={one.problem.n}")
    run.found.missing += [f"counters of {job.kernel}: {', '.join(of)}: {reason}" for reason, of in failed.items()]


def _counted(job: Job, problem: Problem, one: Cell, outcome: Counted) -> Count:
    beside = predicted(job.spec, one.variant, problem, one.choice)
    where = (job.kernel, one.name, problem.n)
    if isinstance(outcome, NoCounters):
        return Count(*where, None, (), beside, outcome.reason)
    return Count(*where, outcome.call, outcome.kernels, beside, seconds=outcome.seconds)
