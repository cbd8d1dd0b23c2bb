"""The part `regret`: our search beside an exhaustive pass on a device, and one race of both with fresh samples.

What is measured, and how, is tune_rows.py's. Everything is compiled before, for both: a pass that looked at everything
would spend most of its time in compilers that our search never meets. The workers of both are started before, too: a
sweep pays for that once, whatever it looks at (gpu_cold.py has the seconds).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from gpu_cells import CELLS, known_of, problem_of, spec_of
from gpu_crew import ahead
from tune_rows import Exhausted, Ground, Spent, exhaustive, fresh_race, ours, regrets

from advisor.codec import digest, to_json
from advisor.kernels.gpu.pool import GpuPool
from advisor.records import Choice, Machine, Problem
from advisor.search.log import Log
from advisor.search.look import Place
from advisor.search.request import Options, Request, Silent
from advisor.search.run import Run
from advisor.search.space import default_choice, space, space_options
from advisor.search.tune import Neighbour

EACH_S, FRESH_S = 90.0, 5.0
"""Seconds of an exhaustive pass, and of the fresh race, at most."""

CHECK_S = 60.0
SMALL_N = 2
"""At this n a choice of each variant is called once before any row: what it imports, or a library loads, is in the
worker then (cuDNN takes seconds)."""


class Walk(NamedTuple):
    """Searches of ascending n, one after another: where they are made, their log with its copy of whole rows, seconds
    that compiling for all took."""

    ground: Ground
    log: Log
    whole: str
    compile_s: float


def request(machine: Machine, label: str, sizes: Sequence[int]) -> Request:
    """Our request for a cell."""
    kernel, problems = CELLS[label].kernel, tuple(problem_of(label, n) for n in sorted(sizes))
    options, session = Options(space_options(machine), resume=True), digest(os.urandom(8).hex())
    return Request(machine, spec_of(kernel), known_of(kernel), problems, options, session, machine.environment)


@contextlib.contextmanager
def walking(folder: str, label: str, wanted: Request) -> Iterator[Walk]:
    """Workers of their own for our search and the exhaustive pass, everything compiled.

    The log begins with what whole rows left in it: of a row that was cut off nothing is known, so that its search takes
    as long as it would have.
    """
    work, whole = (os.path.join(folder, f"regret-{label.replace(':', '-')}.{end}") for end in ("jsonl", "whole.jsonl"))
    if os.path.exists(whole):
        shutil.copyfile(whole, work)
    elif os.path.exists(work):
        os.remove(work)
    gpu = wanted.machine.gpus[0]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(Log(work))
        names = ("ours", "exhaustive")
        pools = {name: stack.enter_context(GpuPool(gpu, wanted.spec, wanted.variants)) for name in names}
        starters = stack.enter_context(ThreadPoolExecutor(len(names)))  # a worker ends with the thread that started it
        run = Run(wanted, pools["ours"], log, Silent(), time.monotonic)
        run.open_session()
        begun = [starters.submit(start, pools[name], wanted) for name in names]
        compile_s = compile_all(wanted)
        for one in begun:
            one.result()
        yield Walk(Ground(run, pools, "", "not asked"), log, whole, compile_s)  # type: ignore[arg-type]


def start(pool: GpuPool, wanted: Request) -> None:
    """Start a worker and let it load what its choices need; it learns nothing of a row."""
    small = wanted.problems[0]._replace(n=SMALL_N)
    each = {choice.build.variant: choice for choice in place_of(wanted, small).choices}
    for choice in each.values():
        pool.check(small, choice, CHECK_S)


def place_of(wanted: Request, problem: Problem) -> Place:
    """The whole space of a problem."""
    where = (wanted.machine, wanted.spec, wanted.variants, problem, wanted.options.space)
    return Place(problem, space(*where), default_choice(*where), ())


def compile_all(wanted: Request) -> float:
    """Compile every choice of every problem once, side by side: all workers share their caches. Returns seconds.

    What is written in Python compiles when it is called, so each choice is called: warm, on one set of operands.
    """
    begun = time.monotonic()
    first = {
        choice: problem._replace(regime="warm")
        for problem in reversed(wanted.problems)
        for choice in place_of(wanted, problem).choices
    }
    ahead(wanted.machine.gpus[0], {wanted.spec.name: wanted.variants}, [(p, choice) for choice, p in first.items()])
    return time.monotonic() - begun


def step(walk: Walk, problem: Problem, before: Neighbour | None) -> Neighbour | None:
    """What our search of a row that is done tells the next: taken from the log."""
    return ours(walk.ground.run, problem, before)[1]


def measure(
    walk: Walk, problem: Problem, before: Neighbour | None, until: float
) -> tuple[dict[str, Any], Neighbour | None]:
    """One row: search, look at everything, race what both chose.

    Args:
        walk: the rows before it, and where this one is made.
        problem: what is searched.
        before: what the row before it tells.
        until: on the monotonic clock; the exhaustive pass ends there.

    Returns:
        The figures, and what they tell the next row. Conditions are in the log.
    """
    run = walk.ground.run
    place = place_of(run.request, problem)
    mine, after = ours(run, problem, before)
    now = time.monotonic()
    whole = exhaustive(walk.ground.pools["exhaustive"], run.request, place, min(now + EACH_S, until))
    racing = tuple(dict.fromkeys([*filter(None, [mine.choice]), *whole.best]))
    samples = fresh_race(walk.ground.pools["ours"], problem, racing, time.monotonic() + FRESH_S)
    walk.log.sync()
    shutil.copyfile(walk.log.path, walk.whole)
    return told(place, (mine, whole), samples, walk.compile_s), after


def told(
    place: Place, found: tuple[Spent, Exhausted], samples: dict[Choice, list[float]], compile_s: float
) -> dict[str, Any]:
    """A row as plain data, in the form of benchmarks/tune.py."""
    mine, whole = found
    picks = {"ours": mine.choice, "exhaustive": whole.best[0] if whole.best else None}
    return {
        "kernel": place.problem.kernel,
        "n": place.problem.n,
        "space": len(place.choices),
        "exhaustive": {"looked": whole.looked, "seconds": whole.seconds, "whole": whole.whole},
        "spent": {"ours": {**mine._asdict(), "choice": to_json(mine.choice) if mine.choice else None}},
        "share": mine.seconds / whole.seconds if whole.seconds else None,
        "compile_s": compile_s,
        "rounds": max(map(len, samples.values()), default=0),
        "regret": regrets(samples, picks),
        "chosen": {name: to_json(choice) for name, choice in picks.items() if choice},
        "samples": {name: samples.get(choice, []) for name, choice in picks.items() if choice},
    }
