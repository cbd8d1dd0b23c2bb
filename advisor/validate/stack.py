"""Outputs of 8 MB, at which the paper's reductions on the stack crashed: every variant of ours once, checked."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.kernels.spec import KernelSpec
from advisor.records import Problem
from advisor.search.space import cpu_budget
from advisor.validate.plan import cells, teams_of
from advisor.validate.race import LIMIT_S, OUT_OF_TIME
from advisor.validate.records import StackCheck
from advisor.validate.request import SHAPE, paper_shape
from advisor.validate.run import Job, Run

STACK_BYTES = 8 << 20
"""An output of this size crashed the paper's reductions. Source: Mullin and Hains, section 4.1."""

STACK_N = 64
"""At this n; the batch makes up the size, so that the arithmetic stays small."""


def stack_problem(spec: KernelSpec) -> Problem:
    """A problem of the paper's kernels whose gradients of k and v have STACK_BYTES each, in float64."""
    batch = STACK_BYTES // (8 * STACK_N * SHAPE["head_dim"])
    return spec.problem(STACK_N, dtype="float64", **{**paper_shape(spec), "batch": batch})


def stacks(run: Run, jobs: Sequence[Job], until: float) -> None:
    """Every variant of these kernels once, with all threads, against the float64 reference; nothing is timed."""
    late = []
    crowd = teams_of(run.machine, [cpu_budget(run.machine)])
    run.progress.stage("buffers of 8 MB", None)
    for job in jobs:
        problem = stack_problem(job.spec)
        wanted = cells(run.machine, job.variants, problem, crowd, run.options)
        for one in wanted:
            if run.clock() > until:
                late.append(f"{job.kernel} {one.variant.name}")
                continue
            job.pool.until = run.end
            found = job.pool.check(problem, one.choice, run.patience_s(LIMIT_S / 4))
            if found.status in OUT_OF_TIME and run.clock() >= run.end:
                late.append(f"{job.kernel} {one.variant.name}")
                continue
            run.found.stack.append(
                StackCheck(job.kernel, one.variant.name, one.threads, STACK_BYTES, found.status, found.reason)
            )
            run.progress.advance(one.variant.name)
    if late:
        run.found.missing.append(f"buffers of 8 MB: no time for {', '.join(late)}")
