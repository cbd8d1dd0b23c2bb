"""Measures on a device: the chain's variants in turns, decode, layers, the block, a cold start, counters. Judges
nothing.

Times never wait for counters, which come last. What does not fit into the budget is left out and named; an interrupt
ends the run, and what was measured is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial

from advisor.errors import AdvisorError
from advisor.kernels.gpu.counts import NoCounters
from advisor.kernels.gpu.profiled import Start
from advisor.kernels.process import kill_running
from advisor.kernels.spec import KernelSpec
from advisor.records import Gpu, Machine, Problem, pairs
from advisor.search.request import Progress
from advisor.search.space import SpaceOptions
from advisor.validate.device_counting import count_chain, reserve_s, worth_trying
from advisor.validate.device_lab import Kept, Lab
from advisor.validate.device_plan import (
    CHAIN,
    ON_DEVICE,
    check_device_request,
    device_cells,
    device_kernels,
    device_problems,
    grids,
    own,
)
from advisor.validate.device_records import Device, DeviceMeasured, Program
from advisor.validate.request import Request, check_shape
from advisor.validate.run import MEASURED_SHARE, Found, Job, Phase, Run, check_served, in_turn
from advisor.validate.sweep import sweep

READY_SHARE = 0.4
"""Of the budget, until when workers are waited for that make contexts, compile, and make what checking takes."""

TRY_S = 90.0
"""Of that, what an attempt to count may take at most: it starts while all compilers are at work."""

CHAIN_WEIGHT = 12.0
"""Of the chain and the counters, beside 1 for each other kernel, of which calls take microseconds."""

COUNTED = (*CHAIN, "block")
"""The kernels of which something is counted."""

Plan = tuple[str, KernelSpec, tuple[Problem, ...]]
"""A kernel, its spec, its problems."""


def device_of(gpu: Gpu) -> Device:
    """What the judges must know of it."""
    return Device(gpu.name, gpu.sm_count, gpu.compute_capability, gpu.memory_bytes, gpu.l2_bytes)


def measure_device(
    request: Request, machine: Machine, progress: Progress, lab: Lab, looked_s: float = 0.0
) -> DeviceMeasured:
    """Measure what a request asks for on a device, as far as its budget goes.

    Args:
        request: kernels, sizes, dtype, shape, budget.
        machine: that of the device.
        progress: told how it goes.
        lab: what is worked with.
        looked_s: seconds of the budget that went before, for looking at the machine.

    Raises:
        BadInput: a size, shape or dtype that makes no sense, threads, or no CUDA variant, none in the dtype.
    """
    begun = lab.clock()
    check_device_request(request)
    kernels = device_kernels(request)
    check_shape(request._replace(kernels=kernels))
    plans = [(kernel, *device_problems(request, kernel)) for kernel in kernels]
    check_served(plans, {kernel: own(kernel, request.kernel_dirs) for kernel in kernels}, machine)
    budget_s = max(0.0, request.budget_s - looked_s)
    end = begun + MEASURED_SHARE * budget_s
    found, kept, others = Found(), Kept(), lab.others()
    run = Run(machine, SpaceOptions(()), {}, budget_s, progress, lab.clock, found, {}, {}, {}, end, ON_DEVICE, looked_s)
    interrupted = False
    try:
        kept.cold_start_s = lab.cold_starts()
        with contextlib.ExitStack() as stack:
            jobs = _jobs(request, plans, run, lab, stack)
            _phases(run, _ready(run, jobs, lab, kept, stack), lab, kept)
    except KeyboardInterrupt:
        interrupted = True
        found.missing.append("interrupted: what comes after that was not measured")
    return _measured(run, lab, kept)._replace(others=others, interrupted=interrupted, seconds=lab.clock() - begun)


def _jobs(
    request: Request, plans: Sequence[Plan], run: Run, lab: Lab, stack: contextlib.ExitStack[bool | None]
) -> list[Job]:
    """The kernels with their CUDA variants and open pools, which the stack closes."""
    found = []
    for kernel, spec, asked in plans:
        listed = own(kernel, request.kernel_dirs)
        pool = stack.enter_context(lab.open_pool(run.machine.gpus[0], spec, listed))
        found.append(Job(kernel, spec, listed, asked, pool))
    return found


def _measured(run: Run, lab: Lab, kept: Kept) -> DeviceMeasured:
    """What a run has found, as a record."""
    tools = {**dict(run.machine.environment), "compiler": ", ".join(name for name, _ in lab.tools)}
    return DeviceMeasured(
        device=device_of(run.machine.gpus[0]),
        series=tuple(run.found.series),
        grids=tuple(kept.grids),
        counts=tuple(kept.counts),
        waits=tuple(kept.waits),
        programs=tuple(kept.programs),
        uncounted=kept.uncounted,
        remedy=kept.remedy,
        cold_start_s=kept.cold_start_s,
        missing=tuple(run.found.missing),
        tools=pairs(tools),
    )


def _phases(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept) -> None:
    """What is quick, then the chain, which has the rest of the time together with the counters."""
    quick = [job for job in jobs if job.kernel not in CHAIN]
    phases: list[Phase] = [(1.0, partial(sweep, run, [job])) for job in quick]
    in_turn(run, [*phases, (CHAIN_WEIGHT, partial(_chain, run, jobs, lab, kept))])


def _chain(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, until: float) -> None:
    """Time the chain, count, then time what there was no time for, if counting has left some."""
    deep = [job for job in jobs if job.kernel in CHAIN]
    counted = [job for job in jobs if job.kernel in COUNTED]
    kept_s = reserve_s(until - run.clock(), kept.tried) if counted else 0.0
    if deep:
        sweep(run, deep, until - kept_s)
    if counted:
        count_chain(run, counted, lab, kept, until)
    run.progress.seconds_left(max(0.0, run.end - run.clock()))
    _again(run, jobs, until)


def _again(run: Run, jobs: Sequence[Job], until: float) -> None:
    """Sweep the problems of which nothing was measured for want of time."""
    done = {one.problem for one in run.found.series}
    done |= {problem for problem, cells in run.wanted.items() if not cells}  # there is nothing to measure of these
    left = [job._replace(problems=tuple(p for p in job.problems if p not in done)) for job in jobs]
    left = [job for job in left if job.problems]
    if left and run.clock() < until:
        late = tuple(f"{job.kernel} n={problem.n}: no time" for job in left for problem in job.problems)
        run.found.missing[:] = [words for words in run.found.missing if not words.startswith(late)]
        sweep(run, left, until)


# --- getting ready ---


def _ready(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, stack: contextlib.ExitStack[bool | None]) -> list[Job]:
    """List the cells; workers start and compile side by side, and beside them an attempt to count, since nothing is
    timed yet. Those jobs whose worker was ready in time.

    A worker's process ends with the thread that started it, so the threads live until the stack is closed.
    """
    run.progress.stage("contexts and compiling", len(jobs))
    run.progress.seconds_left(max(0.0, run.end - run.clock()))
    until = run.clock() + READY_SHARE * run.budget_s
    gpu = run.machine.gpus[0]
    crew = ThreadPoolExecutor(len(jobs) + 1)
    stack.callback(crew.shutdown, wait=False, cancel_futures=True)
    waited: dict[Future[None], Job] = {}
    tried = crew.submit(_tried, run, jobs, lab, kept, until)
    try:
        for job in jobs:
            for problem in job.problems:
                run.wanted[problem] = device_cells(gpu, job.spec, job.variants, problem, lab.tools)
                kept.grids += grids(job.spec, problem, run.wanted[problem])
            waited[crew.submit(_prepared, run, job, until)] = job
        ready = _awaited(run, waited, until)
        tried.result()
    finally:
        if not tried.done():
            kill_running()
    late = [job for job in jobs if job not in ready]
    run.found.missing += [f"{job.kernel}: no time, its programs were not compiled yet" for job in late]
    return [job for job in jobs if job in ready]


def _tried(run: Run, jobs: Sequence[Job], lab: Lab, kept: Kept, until: float) -> None:
    """Try to count, where there is something to count and time for it; ended at the end of getting ready."""
    begun = run.clock()
    if any(job.kernel in COUNTED for job in jobs) and worth_trying(run.end - begun):
        try:
            kept.tried = lab.attempt(max(1.0, min(TRY_S, until - begun)))
        except (AdvisorError, OSError) as error:
            kept.tried = NoCounters(f"counting was not possible: {error}", "")
        start = kept.tried if isinstance(kept.tried, Start) else None
        kept.programs.append(Program("tried", start, 0, run.clock() - begun))


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
