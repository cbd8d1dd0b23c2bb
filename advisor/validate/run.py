"""What all phases of a validation share: the machine, the jobs, the clock, and what was found so far."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from advisor.kernels.served import check_dtype
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Machine, Problem, Team
from advisor.search.request import Progress
from advisor.search.space import SpaceOptions, cpu_budget
from advisor.validate.plan import ON_CPUS, Cell, Known, Pace
from advisor.validate.records import Floor, Node, Series, StackCheck, Window

GRACE_S = 1.0
"""What runs when the time ends is waited for so long."""

MEASURED_SHARE = 0.95
"""Of the budget, until which something may begin: what runs then is waited for, workers end, the program starts."""

Phase = tuple[float, Callable[[float], None]]
"""Weight of a phase, and the phase: it is told the end of its time on the clock."""

Pool = Any
"""An Executor with `prepare`, `check` and `disturbed`: a WorkerPool, or a fake in tests."""


class Job(NamedTuple):
    """One kernel: its spec, variants and problems, ascending in n, and the pool that runs it."""

    kernel: str
    spec: KernelSpec
    variants: tuple[Variant, ...]
    problems: tuple[Problem, ...]
    pool: Pool


class Found:
    """What a run has so far."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.floors: list[Floor] = []
        self.windows: list[Window] = []
        self.stack: list[StackCheck] = []
        self.missing: list[str] = []
        self.languages: list[Series] = []


class Run(NamedTuple):
    """What all phases share. `before`: the last figure of each (kernel, name, threads).

    `teams`: of each kernel.
    `ask_s`: what a turn of a cell of each kernel cost at the last n beside its calls.
    `wanted`: the cells of each problem.
    `end`: of the whole run on the clock; nothing begins after it.
    `looked_s`: what looking at the machine took of the budget that was given; `budget_s` is what it left.
    `pace`: what measuring is expected to cost.
    """

    machine: Machine
    options: SpaceOptions
    teams: dict[str, tuple[Team, ...]]
    budget_s: float
    progress: Progress
    clock: Callable[[], float]
    found: Found
    before: dict[str, dict[tuple[str, int], Known]]
    ask_s: dict[str, float]
    wanted: dict[Problem, tuple[Cell, ...]]
    end: float
    pace: Pace = ON_CPUS
    looked_s: float = 0.0

    def patience_s(self, most: float) -> float:
        """The limit of a call that begins now: so many seconds, but not much past the end."""
        return min(most, max(0.0, self.end - self.clock()) + GRACE_S)


def check_served(
    plans: Sequence[tuple[str, KernelSpec, tuple[Problem, ...]]], own: dict[str, tuple[Variant, ...]], machine: Machine
) -> None:
    """Refuse a dtype in which none of the kernels has a variant where they are to run.

    Args:
        plans: kernels with their specs and problems.
        own: the variants of each.
        machine: that of the CPUs, or of the device.

    Raises:
        BadInput: with the dtypes of the first.
    """
    if not any(asked[0].dtype in one.dtypes for kernel, _, asked in plans for one in own[kernel]):
        kernel, spec, asked = plans[0]
        check_dtype(spec, own[kernel], asked[0].dtype, machine)


def in_turn(run: Run, phases: Sequence[Phase]) -> None:
    """One phase after another, each within its share of what is left."""
    for index, (weight, phase) in enumerate(phases):
        left_s = max(0.0, run.end - run.clock())
        run.progress.seconds_left(left_s)
        phase(run.clock() + left_s * weight / sum(other for other, _ in phases[index:]))


def node_of(machine: Machine) -> Node:
    """What the judges must know of a machine, and this process's stack limit."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    caches = machine.caches.l3 or machine.caches.l2
    groups = max(1, len(machine.l3_groups)) if machine.caches.l3 else machine.cores
    return Node(
        machine.model_name,
        cpu_budget(machine),
        sum(bool(node.cpus) for node in machine.numa_nodes),
        caches * groups if caches else None,
        None if limit == resource.RLIM_INFINITY else limit,
    )
