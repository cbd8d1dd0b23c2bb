"""Measures: growth and threads, C beside Fortran, the read floor, the stolen core, buffers of 8 MB. Judges nothing.

Each phase has a share of the time that is left when it begins, so what one does not use falls to the next. What does
not fit is left out and named. An interrupt ends the run, and what was measured is kept.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial

import psutil

from advisor.kernels import registry
from advisor.kernels.available import c_compiler
from advisor.kernels.pool import WorkerPool
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, for_machine, variants
from advisor.records import Machine, Team
from advisor.search.request import Progress
from advisor.search.space import Toolchain, space_options
from advisor.validate.floors import FOLDER, floors
from advisor.validate.languages import Pair, ends, lacking, language_cells, pairs_here, versions
from advisor.validate.plan import cells, crowded, teams_of
from advisor.validate.records import Measured
from advisor.validate.request import IN_TWO_LANGUAGES, Request, check_shape, problems, teams
from advisor.validate.run import MEASURED_SHARE, Found, Job, Phase, Pool, Run, check_served, in_turn, node_of
from advisor.validate.stack import stacks
from advisor.validate.sweep import prepare, sweep
from advisor.validate.windows import windows

COMPILE_SHARE = 0.5
"""Of the budget, for compiling ahead at most: what is not compiled then is when it is measured, as far as time goes."""


def busy_percent() -> float:
    """Busy share of all CPUs over half a second in which nothing of ours runs, in percent."""
    return psutil.cpu_percent(interval=0.5)


def measure(
    request: Request,
    machine: Machine,
    progress: Progress,
    open_pool: Callable[[Machine, KernelSpec, Sequence[Variant]], Pool] = WorkerPool,
    clock: Callable[[], float] = time.monotonic,
    busy: Callable[[], float] = busy_percent,
    compilers: Callable[[], tuple[Pair, ...]] = pairs_here,
) -> Measured:
    """Measure what a request asks for, as far as its budget goes.

    Args:
        request: kernels, sizes, threads, dtype, shape, budget.
        machine: this one.
        progress: told how it goes.
        open_pool: makes the executor of a kernel, a context manager.
        clock: seconds.
        busy: busy share of all CPUs now, in percent.
        compilers: those of C and Fortran that are compared.

    Raises:
        BadInput: a size, shape, dtype or thread count that makes no sense, or no compiler; no variant in the dtype.
    """
    begun = clock()
    busy_before = busy()
    found = Found()
    check_shape(request)
    pairs = compilers()
    tool = c_compiler()
    options = space_options(machine)._replace(compilers=(Toolchain(tool.name, tool.runtime),))
    plans = [(kernel, *problems(request, kernel)) for kernel in request.kernels]
    own = {kernel: for_machine(variants(kernel, request.kernel_dirs), machine) for kernel in request.kernels}
    check_served(plans, own, machine)
    crowds = {kernel: _crowd(request, machine, kernel) for kernel in request.kernels}
    end = begun + MEASURED_SHARE * request.budget_s
    run = Run(machine, options, crowds, request.budget_s, progress, clock, found, {}, {}, {}, end)
    interrupted = False
    try:
        with contextlib.ExitStack() as stack:
            jobs = []
            for kernel, spec, asked in plans:
                pool = stack.enter_context(open_pool(machine, spec, own[kernel]))
                jobs.append(Job(kernel, spec, own[kernel], asked, pool))
            floor_spec, floor_variants = registry.spec("read", [FOLDER]), variants("read", [FOLDER])
            floor_pool = stack.enter_context(open_pool(machine, floor_spec, floor_variants))
            floor = Job("read", floor_spec, floor_variants, (), floor_pool)
            _phases(run, jobs, floor, pairs)
    except KeyboardInterrupt:
        interrupted = True
        found.missing.append("interrupted: what comes after that was not measured")
    return _measured(run, pairs, interrupted)._replace(seconds=clock() - begun, busy_percent=busy_before)


def _measured(run: Run, pairs: Sequence[Pair], interrupted: bool) -> Measured:
    """What a run has found, as a record."""
    found = run.found
    return Measured(
        node_of(run.machine),
        tuple(found.series),
        tuple(found.floors),
        tuple(found.windows),
        tuple(found.stack),
        tuple(found.missing),
        interrupted,
        languages=tuple(found.languages),
        compilers=versions(pairs) if found.languages else (),
    )


def _crowd(request: Request, machine: Machine, kernel: str) -> tuple[Team, ...]:
    """The teams of a kernel: those asked for; else of the block one thread and all, a call of it takes seconds."""
    if kernel == "block" and not request.threads:
        return ends(machine)
    return teams_of(machine, teams(machine, request.threads))


def _phases(run: Run, jobs: Sequence[Job], floor: Job, pairs: Sequence[Pair]) -> None:
    """One phase after another, each within its share of what is left."""
    named = {job.kernel: job for job in jobs}
    deep = [named[kernel] for kernel in ("forward", "backward", "fused") if kernel in named]
    decode, block = ([named[kernel]] if kernel in named else [] for kernel in ("decode", "block"))
    gradients = [job for job in deep if job.kernel != "forward"]
    both = [named[kernel] for kernel in IN_TWO_LANGUAGES if kernel in named]
    swept = [*deep, *decode, *block]
    _list_and_compile(run, swept)
    raced = _list_languages(run, both, pairs)
    phases: list[Phase] = [(6.0, partial(sweep, run, deep))] if deep else []
    phases += [(2.0, partial(sweep, run, decode))] if decode else []
    phases += [(3.0, partial(sweep, run, block))] if block else []
    phases += [(2.0, partial(_languages, run, raced, both))] if raced else []
    phases += [(1.0, partial(stacks, run, gradients))] if gradients else []
    phases += [(1.0, partial(floors, run, floor))] if swept else []
    phases += [(3.0, partial(windows, run, job)) for job in decode]
    in_turn(run, phases)


def _list_and_compile(run: Run, jobs: Sequence[Job]) -> None:
    """List the cells of every problem, and compile: a first run would else take that for the cost of the smallest n."""
    run.progress.stage("compiling", len(jobs))
    for job in jobs:
        for problem in job.problems:
            run.wanted[problem] = cells(run.machine, job.variants, problem, run.teams[job.kernel], run.options)
            if job.kernel == "decode":
                run.wanted[problem] += crowded(run.machine, job.variants, problem, run.options)
        prepare(run, job, job.problems[0], run.end - (1 - COMPILE_SHARE) * run.budget_s)
        run.progress.advance(job.kernel)


# --- C beside Fortran ---


def _list_languages(run: Run, jobs: Sequence[Job], pairs: Sequence[Pair]) -> Run | None:
    """Cells in both languages, compiled; a run of their own, since each compiler makes something else of a variant.

    None where there is nothing to compare; what is lacking for it is noted.
    """
    reason = lacking(jobs, pairs)
    if not jobs or reason:
        run.found.missing += [reason] if jobs else []
        return None
    run.progress.stage("compiling in two languages", len(jobs))
    own = run._replace(found=Found(), before={}, ask_s={}, wanted={})
    for job in jobs:
        for problem in job.problems:
            listed = language_cells(run.machine, job, problem, pairs, run.options, ends(run.machine))
            own.wanted[problem] = listed
        prepare(own, job, job.problems[0], run.end - (1 - COMPILE_SHARE) * run.budget_s)
        run.progress.advance(job.kernel)
    return own


def _languages(run: Run, own: Run, jobs: Sequence[Job], until: float) -> None:
    """Race what was listed; findings of the own run become the whole's."""
    try:
        sweep(own, jobs, until)
    finally:
        run.found.languages += own.found.series
        run.found.missing += [f"C over Fortran: {words}" for words in own.found.missing]
