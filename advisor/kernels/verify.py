"""`advisor verify`: every variant against its DNF, without timing. `checks.py` says which checks are made."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.device import is_device
from advisor.kernels.checks import choices_of, deal
from advisor.kernels.edges import beyond
from advisor.kernels.executors import pool_for
from advisor.kernels.gpu.checks import Hand, hand
from advisor.kernels.libraries import tools
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Machine, Measurement, Pairs, Problem
from advisor.words import many

CHECK_LIMIT_S = 60.0
"""Limit of one check; the largest problems take a second on one thread."""


class Row(NamedTuple):
    """One check. `draw`: what the inputs were drawn from; `arithmetic`: that of the variant, which `tolerance` is for.

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
    arithmetic: str = "real"


def verify(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problems: Sequence[Problem] | None = None
) -> list[Row]:
    """Check all variants on the spec's edge problems, on a device on some beyond them too, or on the problems given.

    Returns:
        One row a check, wrong ones with the measured error; a variant that this machine cannot run has a row that
        says so for each problem.
    """
    return list(rows(machine, spec, variants, problems))


def rows(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problems: Sequence[Problem] | None = None
) -> Iterator[Row]:
    """The same one by one, for a display that goes along."""
    further = beyond(spec) if is_device(machine.limits_id) else ()
    wanted = tuple(dict.fromkeys([*spec.edges(), *further] if problems is None else problems))
    hands = _hands(machine, spec, variants, wanted)
    arithmetic = {variant.name: variant.arithmetic for variant in variants}
    with pool_for(machine, spec, variants) as pool:
        for problem in wanted:
            pool.prepare(problem, [choice for each in hands for choice in each(problem, "normal")])
            for draw, each in itertools.product(spec.draws, hands):
                for choice in each(problem, draw):
                    row = _row(pool.check(problem, choice, CHECK_LIMIT_S, draw), draw)
                    yield row._replace(arithmetic=arithmetic[row.variant])


def _hands(machine: Machine, spec: KernelSpec, variants: Sequence[Variant], wanted: Sequence[Problem]) -> list[Hand]:
    """What is checked of each variant, on the CPUs or on the device."""
    if is_device(machine.limits_id):
        return [hand(machine.gpus[0], spec, variant, wanted) for variant in variants]
    return [functools.partial(choices_of, deal(machine, variant, wanted, tools())) for variant in variants]


def _row(found: Measurement, draw: str) -> Row:
    """A right result by another team than the one asked for is wrong too: it would be pinned and timed as another."""
    made, team = found.choice.build, found.choice.team
    if team and found.status == "ok" and found.threads_observed != team.threads:
        was = "was" if team.threads == 1 else "were"
        reason = f"ran on {many(found.threads_observed or 0, 'thread')} where {team.threads} {was} asked for"
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
