"""Interleaved rounds: every cell of a group once a round, in another order each time, until there are enough."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from advisor.kernels.executor import Executor
from advisor.kernels.gpu.geometry import launch_names
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import evaluate, names
from advisor.records import Measurement, Problem
from advisor.search.protocol import LOOK_SAMPLE_S, shuffled, single
from advisor.validate.plan import LEAST_ROUNDS, MOST_ROUNDS, Cell
from advisor.validate.records import Series
from advisor.validate.run import Run

LIMIT_S = 120.0

FEWEST_ROUNDS = 3
"""A figure of fewer is one of chance."""

OUT_OF_TIME = ("timeout", "skipped")
"""How a choice ends that the end of the run left no time for."""

ONE_SAMPLE = single(LIMIT_S, LOOK_SAMPLE_S, long_calls=True)


class Taken(NamedTuple):
    """What a race has so far; filled while it runs, so that an interrupt loses nothing."""

    samples: dict[Cell, list[float]]
    failed: dict[Cell, Measurement]


def race(
    executor: Executor,
    problem: Problem,
    cells: Sequence[Cell],
    until: float,
    run: Run,
    taken: Taken,
) -> None:
    """LEAST_ROUNDS, and up to MOST_ROUNDS as long as there is time; what fails is left out of further ones.

    Where the time is up before that, FEWEST_ROUNDS are enough for a figure, though for no interval. At the end of the
    run it stops within a round, and what only then hit a limit has not failed.

    Args:
        executor: of this kernel.
        problem: one problem.
        cells: what races.
        until: on the run's clock, in s; a round that is not expected to end before it is not begun.
        run: its clock and end.
        taken: gets the samples.
    """
    shuffle = random.Random(problem.n)
    longest = 0.0
    for number in range(MOST_ROUNDS):
        begun = run.clock()
        if (number >= LEAST_ROUNDS and begun + longest > until) or (number >= FEWEST_ROUNDS and begun > until):
            return
        alive = [one for one in cells if one not in taken.failed]
        for one in shuffled(shuffle, alive):
            if run.clock() >= run.end:
                return
            found = executor.measure(problem, one.choice, ONE_SAMPLE._replace(limit_s=run.patience_s(LIMIT_S)))
            if found.status in OUT_OF_TIME and run.clock() >= run.end:
                return
            if found.status != "ok":
                taken.failed[one] = found
            else:
                taken.samples.setdefault(one, []).append(found.samples_ns[0])
        longest = max(longest, run.clock() - begun) if number else 0.0  # the first one builds and checks


def series(spec: KernelSpec, problem: Problem, taken: Taken) -> tuple[Series, ...]:
    """The cells of a race as records: whole rounds only, so that sample i of each is of round i."""
    running = {one: samples for one, samples in taken.samples.items() if one not in taken.failed}
    rounds = min(map(len, running.values()), default=0)
    found = [_series(spec, problem, one, "ok", tuple(samples[:rounds])) for one, samples in running.items() if rounds]
    failed = [_series(spec, problem, one, end.status, (), end.reason) for one, end in taken.failed.items()]
    return (*found, *failed)


def _series(
    spec: KernelSpec, problem: Problem, one: Cell, status: str, samples_ns: tuple[float, ...], reason: str = ""
) -> Series:
    made = one.choice.build
    own = one.variant
    known = launch_names(own, problem, made.knobs) if own.launch else names(problem, made.knobs)
    moved = evaluate(own.reads, known) + evaluate(own.writes, known)
    item = ITEM_BYTES[problem.dtype]
    flops = spec.flops(problem)
    return Series(
        problem,
        one.name,
        one.threads,
        one.pinned,
        status,
        samples_ns,
        flops,
        moved,
        item,
        reason,
        made.compiler,
    )
