"""Measures: growth and threads of every variant, the read floor, the stolen core, buffers of 8 MB. Judges nothing.

Each phase has a share of the time that is left when it begins, so what one does not use falls to the next. What does
not fit is left out and named. An interrupt ends the run, and what was measured is kept.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial

from advisor.kernels import registry
from advisor.kernels.pool import WorkerPool
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, variants
from advisor.records import Machine, Problem
from advisor.search.request import Progress
from advisor.search.samples import smooth_p25
from advisor.search.space import space_options
from advisor.validate.floors import FOLDER, floors
from advisor.validate.plan import (
    ASK_S,
    REFERENCE_FLOPS_PER_NS,
    Cell,
    cell_s,
    cells,
    crowded,
    expected_ns,
    fitting,
    turns,
)
from advisor.validate.race import Taken, race, series
from advisor.validate.records import Measured
from advisor.validate.request import Request, problems, teams
from advisor.validate.run import Found, Job, Pool, Run, node_of
from advisor.validate.stack import stacks
from advisor.validate.windows import windows

LEAST_SHARE = 0.5
"""Of the budget, for measuring, however long compiling took: it is done once, and the next run has all the time."""


Phase = tuple[float, Callable[[float], None]]
"""Weight of a phase, and the phase: it is told the end of its time on the clock."""


def measure(
    request: Request,
    machine: Machine,
    progress: Progress,
    open_pool: Callable[[Machine, KernelSpec, Sequence[Variant]], Pool] = WorkerPool,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Measure what a request asks for, as far as its budget goes.

    Args:
        request: kernels, sizes, threads, dtype, shape, budget.
        machine: this one.
        progress: told how it goes.
        open_pool: makes the executor of a kernel, a context manager.
        clock: seconds.

    Raises:
        BadInput: a size, shape, dtype or thread count that makes no sense, or no compiler.
    """
    begun = clock()
    found = Found()
    counts = teams(machine, request.threads)
    options = space_options(machine)
    options = options._replace(compilers=tuple(tool for tool in options.compilers if tool.language == "c")[:1])
    plans = [(kernel, *problems(request, kernel)) for kernel in request.kernels]
    run = Run(machine, options, counts, request.budget_s, progress, clock, found, {}, {})
    interrupted = False
    try:
        with contextlib.ExitStack() as stack:
            jobs = []
            for kernel, spec, asked in plans:
                own = variants(kernel, request.kernel_dirs)
                pool = stack.enter_context(open_pool(machine, spec, own))
                jobs.append(Job(kernel, spec, own, asked, pool))
            floor_spec, floor_variants = registry.spec("read", [FOLDER]), variants("read", [FOLDER])
            floor_pool = stack.enter_context(open_pool(machine, floor_spec, floor_variants))
            _phases(run, jobs, Job("read", floor_spec, floor_variants, (), floor_pool), begun)
    except KeyboardInterrupt:
        interrupted = True
        found.missing.append("interrupted: what comes after that was not measured")
    return Measured(
        node_of(machine),
        tuple(found.series),
        tuple(found.floors),
        tuple(found.windows),
        tuple(found.stack),
        tuple(found.missing),
        interrupted,
        clock() - begun,
    )


def _phases(run: Run, jobs: Sequence[Job], floor: Job, begun: float) -> None:
    """One phase after another, each within its share of what is left."""
    _compile(run, jobs)
    decode = [job for job in jobs if job.kernel == "decode"]
    deep = [job for job in jobs if job.kernel != "decode"]
    gradients = [job for job in deep if job.kernel != "forward"]
    phases: list[Phase] = [(6.0, partial(_sweep, run, deep))] if deep else []
    phases += [(2.0, partial(_sweep, run, decode))] if decode else []
    phases += [(1.0, partial(stacks, run, gradients))] if gradients else []
    phases += [(1.0, partial(floors, run, floor))]
    phases += [(3.0, partial(windows, run, job)) for job in decode]
    end = max(begun + run.budget_s, run.clock() + LEAST_SHARE * run.budget_s)
    for index, (weight, phase) in enumerate(phases):
        left_s = max(0.0, end - run.clock())
        run.progress.seconds_left(left_s)
        phase(run.clock() + left_s * weight / sum(other for other, _ in phases[index:]))


def _compile(run: Run, jobs: Sequence[Job]) -> None:
    """Everything at once, several at a time: a first run would else take it for the cost of the smallest n."""
    run.progress.stage("compiling", len(jobs))
    for job in jobs:
        for problem in job.problems[:1]:
            wanted = cells(run.machine, job.variants, problem, run.counts[:1], run.options)
            job.pool.prepare(problem, [one.choice for one in wanted])
        run.progress.advance(job.kernel)


# --- growth and threads ---


def _sweep(run: Run, jobs: Sequence[Job], until: float) -> None:
    """All kernels at the smallest n, then at the next one, so that what runs out of time is the largest n."""
    steps = [(n, job) for n in sorted({p.n for job in jobs for p in job.problems}) for job in jobs]
    steps = [(n, job) for n, job in steps if any(p.n == n for p in job.problems)]
    run.progress.stage(" ".join(job.kernel for job in jobs), len(steps))
    for n, job in steps:
        sharing = sum(n == other for other, _ in steps) - [j for m, j in steps if m == n].index(job)
        problem = next(p for p in job.problems if p.n == n)
        _group(run, job, problem, run.clock() + max(0.0, until - run.clock()) / sharing)
        run.progress.advance(f"{job.kernel} n={n}")


def _group(run: Run, job: Job, problem: Problem, until: float) -> None:
    """Race the cells of one kernel at one n that fit until then; note those that do not."""
    wanted = cells(run.machine, job.variants, problem, run.counts, run.options)
    if job.kernel == "decode":
        wanted = (*wanted, *crowded(run.machine, job.variants, problem, run.options))
    if not wanted:
        run.found.missing.append(f"{job.kernel} n={problem.n}: no variant for {problem.dtype} and this shape")
        return
    before = run.before.setdefault(job.kernel, {})
    ask_s = run.ask_s.get(job.kernel, ASK_S)
    costs = {one: cell_s(expected_ns(job.spec, problem, one, before), ask_s) for one in wanted}
    fixed = job.spec.flops(problem) / REFERENCE_FLOPS_PER_NS * 1e-9
    kept = fitting(costs, until - run.clock() - fixed)
    _note_left_out(run, problem, [one for one in wanted if one not in kept], costs)
    if not kept:
        return
    taken = Taken({}, {})
    begun = run.clock()
    try:
        job.pool.prepare(problem, [one.choice for one in kept])
        race(job.pool, problem, kept, until, run.clock, taken)
    finally:
        run.found.series += series(job.spec, problem, taken)
    spent_s = run.clock() - begun - fixed
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
