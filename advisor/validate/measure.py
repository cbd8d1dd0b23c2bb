"""Measures: growth and threads, C beside Fortran, the read floor, the stolen core, buffers of 8 MB. Judges nothing.

Each phase has a share of the time that is left when it begins, so what one does not use falls to the next. What does
not fit is left out and named. An interrupt ends the run, and what was measured is kept.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial

import psutil

from advisor.kernels import registry
from advisor.kernels.available import c_compiler
from advisor.kernels.pool import WorkerPool
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, for_machine, variants
from advisor.records import Machine, Problem, Team
from advisor.search.request import Progress
from advisor.search.samples import smooth_p25
from advisor.search.space import Toolchain, space_options
from advisor.validate.floors import FOLDER, floors
from advisor.validate.languages import Pair, ends, lacking, language_cells, pairs_here, versions
from advisor.validate.plan import (
    ASK_S,
    REFERENCE_FLOPS_PER_NS,
    Cell,
    cell_s,
    cells,
    crowded,
    expected_ns,
    fitting,
    teams_of,
    turns,
)
from advisor.validate.race import Taken, race, series
from advisor.validate.records import Measured
from advisor.validate.request import IN_TWO_LANGUAGES, Request, check_shape, problems, teams
from advisor.validate.run import Found, Job, Pool, Run, node_of
from advisor.validate.stack import stacks
from advisor.validate.windows import windows

MEASURED_SHARE = 0.95
"""Of the budget, until which something may begin: what runs then is waited for, workers end, the program starts."""

COMPILE_SHARE = 0.5
"""Of the budget, for compiling ahead at most: what is not compiled then is when it is measured, as far as time goes."""

Phase = tuple[float, Callable[[float], None]]
"""Weight of a phase, and the phase: it is told the end of its time on the clock."""


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
        BadInput: a size, shape, dtype or thread count that makes no sense, or no compiler.
    """
    begun = clock()
    busy_before = busy()
    found = Found()
    check_shape(request)
    pairs = compilers()
    tool = c_compiler()
    options = space_options(machine)._replace(compilers=(Toolchain(tool.name, tool.runtime),))
    plans = [(kernel, *problems(request, kernel)) for kernel in request.kernels]
    crowds = {kernel: _crowd(request, machine, kernel) for kernel in request.kernels}
    end = begun + MEASURED_SHARE * request.budget_s
    run = Run(machine, options, crowds, request.budget_s, progress, clock, found, {}, {}, {}, end)
    interrupted = False
    try:
        with contextlib.ExitStack() as stack:
            jobs = []
            for kernel, spec, asked in plans:
                own = for_machine(variants(kernel, request.kernel_dirs), machine)
                pool = stack.enter_context(open_pool(machine, spec, own))
                jobs.append(Job(kernel, spec, own, asked, pool))
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
    phases: list[Phase] = [(6.0, partial(_sweep, run, deep))] if deep else []
    phases += [(2.0, partial(_sweep, run, decode))] if decode else []
    phases += [(3.0, partial(_sweep, run, block))] if block else []
    phases += [(2.0, partial(_languages, run, raced, both))] if raced else []
    phases += [(1.0, partial(stacks, run, gradients))] if gradients else []
    phases += [(1.0, partial(floors, run, floor))] if swept else []
    phases += [(3.0, partial(windows, run, job)) for job in decode]
    for index, (weight, phase) in enumerate(phases):
        left_s = max(0.0, run.end - run.clock())
        run.progress.seconds_left(left_s)
        phase(run.clock() + left_s * weight / sum(other for other, _ in phases[index:]))


def _list_and_compile(run: Run, jobs: Sequence[Job]) -> None:
    """List the cells of every problem, and compile: a first run would else take that for the cost of the smallest n."""
    run.progress.stage("compiling", len(jobs))
    for job in jobs:
        for problem in job.problems:
            run.wanted[problem] = cells(run.machine, job.variants, problem, run.teams[job.kernel], run.options)
            if job.kernel == "decode":
                run.wanted[problem] += crowded(run.machine, job.variants, problem, run.options)
        _prepare(run, job, job.problems[0], run.end - (1 - COMPILE_SHARE) * run.budget_s)
        run.progress.advance(job.kernel)


def _prepare(run: Run, job: Job, problem: Problem, until: float, cells: Sequence[Cell] | None = None) -> None:
    """Compile what a problem needs, until then; what is measured later is bound by the end of the run."""
    job.pool.until = min(until, run.end)
    job.pool.prepare(problem, [one.choice for one in (run.wanted[problem] if cells is None else cells)])
    job.pool.until = run.end


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
        _prepare(own, job, job.problems[0], run.end - (1 - COMPILE_SHARE) * run.budget_s)
        run.progress.advance(job.kernel)
    return own


def _languages(run: Run, own: Run, jobs: Sequence[Job], until: float) -> None:
    """Race what was listed; findings of the own run become the whole's."""
    try:
        _sweep(own, jobs, until)
    finally:
        run.found.languages += own.found.series
        run.found.missing += [f"C over Fortran: {words}" for words in own.found.missing]


# --- growth and threads ---


def _sweep(run: Run, jobs: Sequence[Job], until: float) -> None:
    """All kernels at the smallest n, then at the next one, so that what runs out of time is the largest n."""
    steps = sorted(((problem, job) for job in jobs for problem in job.problems), key=lambda step: step[0].n)
    run.progress.stage(" ".join(job.kernel for job in jobs), len(steps))
    for index, (problem, job) in enumerate(steps):
        _group(run, job, problem, (run.clock() + _share_s(run, steps[index:], until), until))
        run.progress.advance(f"{job.kernel} n={problem.n}")


def _share_s(run: Run, steps: Sequence[tuple[Problem, Job]], until: float) -> float:
    """Seconds for the first of these steps: its least rounds, and its part of what those that can still run leave."""
    left_s = until - run.clock()
    least = [fixed + sum(costs.values()) for fixed, costs in (_costs(run, job, problem) for problem, job in steps)]
    spent = [total for total in itertools.accumulate(least) if total <= left_s]
    return least[0] + max(0.0, left_s - spent[-1]) / len(spent) if spent else left_s


def _costs(run: Run, job: Job, problem: Problem) -> tuple[float, dict[Cell, float]]:
    """Seconds that inputs and reference take, and each cell with its least rounds."""
    wanted = run.wanted[problem]
    before = run.before.get(job.kernel, {})
    ask_s = run.ask_s.get(job.kernel, ASK_S)
    fixed_s = job.spec.flops(problem) / REFERENCE_FLOPS_PER_NS * 1e-9
    return fixed_s, {one: cell_s(expected_ns(job.spec, problem, one, before), ask_s) for one in wanted}


def _group(run: Run, job: Job, problem: Problem, ends: tuple[float, float]) -> None:
    """Race the cells of one kernel at one n that fit; note those that do not.

    `ends`: further rounds than the least are run until the first, and what does not fit before the second is left out.
    """
    fixed_s, costs = _costs(run, job, problem)
    if not costs:
        run.found.missing.append(f"{job.kernel} n={problem.n}: no variant for {problem.dtype} and this shape")
        return
    kept = fitting(costs, ends[1] - run.clock() - fixed_s)
    _note_left_out(run, problem, [one for one in costs if one not in kept], costs)
    if not kept:
        return
    taken = Taken({}, {})
    begun = run.clock()
    try:
        _prepare(run, job, problem, ends[1], kept)
        race(job.pool, problem, kept, ends[0], run, taken)
        _note_left_out(run, problem, [one for one in kept if one not in {**taken.samples, **taken.failed}], costs)
    finally:
        run.found.series += series(job.spec, problem, taken)
    _learn(run, job, problem, taken, run.clock() - begun - fixed_s)


def _learn(run: Run, job: Job, problem: Problem, taken: Taken, spent_s: float) -> None:
    """What the next n of this kernel is expected to cost."""
    before = run.before.setdefault(job.kernel, {})
    for one, samples in taken.samples.items():
        before[one.variant.name, one.threads] = problem, smooth_p25(samples)
        spent_s -= cell_s(smooth_p25(samples), 0.0, len(samples))
    asked = sum(turns(len(samples)) for samples in taken.samples.values())
    run.ask_s[job.kernel] = max(ASK_S, spent_s / max(1, asked))


def _note_left_out(run: Run, problem: Problem, left_out: Sequence[Cell], costs: dict[Cell, float]) -> None:
    if left_out:
        free = [" free" if not one.pinned else "" for one in left_out]
        what = ", ".join(f"{one.variant.name} {one.threads}T{word}" for one, word in zip(left_out, free, strict=True))
        what = "any variant" if len(left_out) == len(costs) else what
        seconds = sum(costs[one] for one in left_out)
        run.found.missing.append(f"{problem.kernel} n={problem.n}: no time for {what} (about {seconds:.0f} s)")
