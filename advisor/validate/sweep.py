"""All variants of some kernels at one n after another, each n a race, as far as the time goes. Judges nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from advisor.records import Problem
from advisor.search.samples import smooth_p25
from advisor.validate.plan import ON_CPUS, Cell, cell_s, expected_ns, fitting, learned, turns
from advisor.validate.race import Taken, race, series
from advisor.validate.run import Job, Run


def prepare(run: Run, job: Job, problem: Problem, until: float, cells: Sequence[Cell] | None = None) -> None:
    """Compile what a problem needs, until then; what is measured later is bound by the end of the run."""
    job.pool.until = min(until, run.end)
    job.pool.prepare(problem, [one.choice for one in (run.wanted[problem] if cells is None else cells)])
    job.pool.until = run.end


def sweep(run: Run, jobs: Sequence[Job], until: float) -> None:
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
    ask_s = run.ask_s.get(job.kernel, run.pace.ask_s)
    fixed_s = job.spec.flops(problem) / run.pace.reference_flops_per_ns * 1e-9
    expected = {one: expected_ns(job.spec, problem, one, before, run.pace) for one in wanted}
    return fixed_s, {one: cell_s(call_ns, ask_s, pace=run.pace) for one, call_ns in expected.items()}


def _group(run: Run, job: Job, problem: Problem, ends: tuple[float, float]) -> None:
    """Race the cells of one kernel at one n that fit; note those that do not.

    `ends`: further rounds than the least are run until the first, and what does not fit before the second is left out.
    """
    fixed_s, costs = _costs(run, job, problem)
    if not costs:
        run.found.missing.append(f"{job.kernel} n={problem.n}: no variant for {problem.dtype} and this shape")
        return
    kept = fitting(costs, ends[1] - run.clock() - fixed_s, run.pace.least_share)
    _note_left_out(run, problem, [one for one in costs if one not in kept], costs)
    if not kept:
        return
    taken = Taken({}, {})
    begun = run.clock()
    try:
        prepare(run, job, problem, ends[1], kept)
        race(job.pool, problem, kept, ends[0], run, taken)
        _note_left_out(run, problem, [one for one in kept if one not in {**taken.samples, **taken.failed}], costs)
    finally:
        run.found.series += series(job.spec, problem, taken)
    _learn(run, job, problem, taken, run.clock() - begun - fixed_s)


def _learn(run: Run, job: Job, problem: Problem, taken: Taken, spent_s: float) -> None:
    """What the next n of this kernel is expected to cost."""
    before = run.before.setdefault(job.kernel, {})
    for one, samples in taken.samples.items():
        key = one.name, one.threads
        before[key] = learned(job.spec, problem, smooth_p25(samples), before.get(key), run.pace)
        spent_s -= cell_s(smooth_p25(samples), 0.0, len(samples), run.pace)
    asked = sum(turns(len(samples), run.pace) for samples in taken.samples.values())
    run.ask_s[job.kernel] = max(ON_CPUS.ask_s, spent_s / max(1, asked))


def _note_left_out(run: Run, problem: Problem, left_out: Sequence[Cell], costs: dict[Cell, float]) -> None:
    if left_out:
        what = ", ".join(one.label for one in left_out)
        what = "any variant" if len(left_out) == len(costs) else what
        seconds = sum(costs[one] for one in left_out)
        run.found.missing.append(f"{problem.kernel} n={problem.n}: no time for {what} (about {seconds:.0f} s)")
