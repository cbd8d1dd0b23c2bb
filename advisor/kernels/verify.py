"""`advisor verify`: every variant against its DNF, without timing.

Each combination of build knobs is built at least once with the first compiler and flag set; further compilers and flag
sets check the default knobs. Run knobs are checked at their extremes and their defaults, teams at several sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.errors import PlacementError
from advisor.kernels.compilers import Compiler, flag_sets
from advisor.kernels.libraries import flag_sets_of, tools
from advisor.kernels.pool import WorkerPool
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, knob_sets, missing_isa
from advisor.records import Build, Choice, Machine, Measurement, Pairs, Problem, Process, Team
from advisor.topology.placement import UNPINNED, evaluate

CHECK_LIMIT_S = 60.0
"""Limit of one check; the largest problems take a second on one thread."""


class Row(NamedTuple):
    """One check. `draw`: what the inputs were drawn from.

    `error` is None where nothing finite was compared; `status` as in a Measurement.
    """

    variant: str
    knobs: Pairs
    compiler: str
    flags: str
    threads: int
    problem: Problem
    draw: str
    error: float | None
    tolerance: float | None
    status: str
    reason: str


def verify(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problems: Sequence[Problem] | None = None
) -> list[Row]:
    """Check all variants on the spec's edge problems, or on the problems given.

    Returns:
        One row a check, wrong ones with the measured error; a variant that this machine cannot run has a row that
        says so for each problem.
    """
    return list(rows(machine, spec, variants, problems))


def rows(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problems: Sequence[Problem] | None = None
) -> Iterator[Row]:
    """The same one by one, for a display that goes along."""
    wanted = tuple(dict.fromkeys(spec.edges() if problems is None else problems))
    found = tools()
    with WorkerPool(machine, spec, variants) as pool:
        for problem in wanted:
            choices = [choice for variant in variants for choice in choices_of(machine, variant, problem, found)]
            pool.prepare(problem, choices)
            for draw, choice in itertools.product(spec.draws, choices):
                yield _row(pool.check(problem, choice, CHECK_LIMIT_S, draw), draw)


def choices_of(machine: Machine, variant: Variant, problem: Problem, found: Sequence[Compiler]) -> Iterator[Choice]:
    """The choices that are checked of one variant on one problem."""
    sets = knob_sets(variant, problem)
    if missing_isa(variant, machine):
        sets = sets[:1]  # one row that says what is missing is enough
    plain = [knobs for knobs in sets if knobs == variant.defaults] or sets[:1]
    own, sets_of_flags = [c for c in found if c.language == variant.language], flag_sets(machine)
    pairs_of_both = itertools.product(own, flag_sets_of(variant.language, sets_of_flags))
    for first, (compiler, flags) in enumerate(pairs_of_both):
        for knobs in _spread(variant, sets) if first == 0 else plain:
            made = Build(variant.name, variant.source_hash, knobs, compiler.name, flags)
            for team in _teams(machine):
                yield Choice(made, team, Process(compiler.runtime, "default", None, "default"))


def _spread(variant: Variant, sets: Sequence[Pairs]) -> list[Pairs]:
    """Every valid combination of build knobs with the least, the largest and the default value of each run knob."""
    defaults = dict(variant.defaults)
    ends = {knob: {min(values), max(values), defaults[knob]} for knob, values in variant.run_knobs}
    return [knobs for knobs in sets if all(dict(knobs)[knob] in values for knob, values in ends.items())]


def _teams(machine: Machine) -> list[Team]:
    """1, 2 and 3 threads and as many as the mask has; unpinned where there are fewer CPUs than threads."""
    sizes = sorted({1, 2, 3, max(1, len(machine.allowed_cpus))})
    return [Team(threads, _placement(machine, threads)) for threads in sizes]


def _placement(machine: Machine, threads: int) -> str:
    try:
        evaluate("", machine.array, machine.allowed_cpus, threads)
    except PlacementError:
        return UNPINNED
    return ""


def _row(found: Measurement, draw: str) -> Row:
    """A right result by another team than the one asked for is wrong too: it would be pinned and timed as another."""
    made, team = found.choice.build, found.choice.team
    if team and found.status == "ok" and found.threads_observed != team.threads:
        reason = f"ran on {found.threads_observed} threads where {team.threads} were asked for"
        found = found._replace(status="wrong", reason=reason)
    return Row(
        variant=made.variant,
        knobs=made.knobs,
        compiler=made.compiler,
        flags=made.flags,
        threads=team.threads if team else 0,
        problem=found.problem,
        draw=draw,
        error=found.error,
        tolerance=found.tolerance,
        status=found.status,
        reason=found.reason,
    )
