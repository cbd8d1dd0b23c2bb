"""The real tuner on simulated machines: how far from the model's optimum it ends, and in what share of the time."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from fake import recorded_noise
from simulated_machine import (
    FITTED,
    PUBLISHED_SHAPE,
    Shape,
    Simulated,
    SimulatedExecutor,
    drawn_model,
    drawn_shape,
    drawn_traits,
    machine_of,
)

from advisor.kernels.registry import spec
from advisor.kernels.variant import variants
from advisor.records import Choice, Problem, Verdict
from advisor.search.log import Log
from advisor.search.protocol import GIVE_UP, LOOK_SAMPLE_S, LOOK_SAMPLES
from advisor.search.request import Options, Outcome, Request
from advisor.search.space import SpaceOptions, Toolchain, binary, cpu_budget, space
from advisor.search.tune import tune

SIZES = {"decode": (1024, 16384, 262144), "forward": (128, 512, 2048), "fused": (64, 256, 1024)}
"""n that is tuned, a kernel: from calls that fork and join decides to calls that work decides."""

NOISES = 4
"""Recorded series."""

NEXT_NOISE = 389
"""Samples by which the noise of a further tune is shifted."""

LARGE_N, LARGE_SHARE, SMALL_SHARE = 16384, 0.1, 0.2
"""The goal in time: at most a tenth of an exhaustive search from this n, a fifth below."""

FAR_REGRET, MEAN_REGRET = 0.05, 0.02
"""The goal in regret: worst, and geometric mean."""


class Drawn(NamedTuple):
    """A simulated machine and what is tuned on it."""

    number: int
    shape: Shape
    kernel: str
    noise: int
    offset: int
    seed: int


class Result(NamedTuple):
    """How one problem went.

    Attributes:
        looked: first looks. regret: time over the model's optimum, less 1, without noise.
        share: time of search and race over that of looking at the whole space and the same race.
        seen: the same for the best choice that was looked at: what is above it, the race lost.
        default_regret: that of the DEFAULT choice.
        limits: words on what decided at the optimum: threads, placement, waiting.
    """

    drawn: Drawn
    n: int
    space: int
    looked: int
    regret: float
    seen: float
    default_regret: float
    share: float
    stopped: str
    winner: str
    optimum: str


def draw(number: int, seed: int = 0) -> Drawn:
    """The machine of this number; number 0 has the published shape."""
    rng = random.Random(f"{seed} {number}")
    shape = PUBLISHED_SHAPE if number == 0 else drawn_shape(rng)
    kernel = sorted(SIZES)[number % len(SIZES)]
    return Drawn(number, shape, kernel, rng.randrange(NOISES), rng.randrange(1000), rng.getrandbits(32))


def ground(drawn: Drawn) -> tuple[Request, Callable[[Problem], tuple[Choice, ...]], Simulated]:
    """The request, the space of a problem, and the machine."""
    machine, kernel = machine_of(drawn.shape), spec(drawn.kernel)
    several = drawn.shape.sockets * drawn.shape.numa > 1
    options = SpaceOptions(
        (Toolchain("gcc", "libgomp"),), memory_policies=("default", "interleave") if several else ("default",)
    )
    problems = tuple(kernel.problem(n) for n in SIZES[drawn.kernel])
    known = tuple(v for v in variants(drawn.kernel) if v.language == "c")
    request = Request(machine, kernel, known, problems, Options(options, seed=drawn.seed), "simulated")

    def listed(problem: Problem) -> tuple[Choice, ...]:
        return space(machine, kernel, known, problem, options)

    rng = random.Random(drawn.seed)
    every = [choice for problem in problems for choice in listed(problem)]
    return request, listed, Simulated(machine, drawn_model(rng, FITTED), drawn_traits(rng), every)


def exhaustive_s(
    executor: SimulatedExecutor, choices: Sequence[Choice], times_s: np.ndarray, done: set[object]
) -> float:
    """Seconds of first looks at a whole space, hopeless ones given up, with every build that is not done yet."""
    new = {binary(choice.build) for choice in choices} - done
    done |= new
    builds = executor.build_s * -(-len(new) // cpu_budget(executor.simulated.machine))
    samples = np.where(times_s > GIVE_UP * times_s.min(), 1, LOOK_SAMPLES)
    return float(builds + (samples * np.maximum(times_s, LOOK_SAMPLE_S) + executor.overhead_s).sum())


class Tuned(NamedTuple):
    """A machine that was tuned: its space a problem, the machine, what ran on it, what came of it."""

    drawn: Drawn
    listed: Callable[[Problem], tuple[Choice, ...]]
    simulated: Simulated
    executor: SimulatedExecutor
    outcome: Outcome

    @property
    def finals(self) -> dict[int, Verdict]:
        """n -> the final verdict."""
        return {v.problem.n: v for v in self.outcome.verdicts if v.purpose == "final"}


def tuned(drawn: Drawn, path: str, again: int = 0) -> Tuned:
    """Tune one machine.

    Args:
        path: of the log; what it has of earlier tunes of this machine counts.
        again: how often it was tuned before: another seed and other noise each time.
    """
    request, listed, simulated = ground(drawn)
    options = request.options._replace(seed=drawn.seed + again)
    executor = SimulatedExecutor(simulated, recorded_noise(drawn.noise, drawn.offset + NEXT_NOISE * again))
    with Log(path) as log:
        asked = request._replace(options=options, session=f"simulated-{again}")
        return Tuned(drawn, listed, simulated, executor, tune(asked, executor, log, clock=executor.clock))


def trial(drawn: Drawn) -> list[Result]:
    """Tune one machine, and judge every n by the model."""
    with tempfile.TemporaryDirectory() as folder:
        return judged(tuned(drawn, os.path.join(folder, "m.jsonl")))


def twice(drawn: Drawn, from_nothing: bool) -> tuple[Tuned, Tuned]:
    """Tune one machine, then again with another seed and other noise: with the log of the first, or from nothing."""
    with tempfile.TemporaryDirectory() as folder:
        first = tuned(drawn, os.path.join(folder, "0.jsonl"))
        return first, tuned(drawn, os.path.join(folder, "1.jsonl" if from_nothing else "0.jsonl"), 1)


def judged(done: Tuned) -> list[Result]:
    """Every n of a machine that was tuned, judged by the model."""
    drawn, listed, simulated, executor, outcome = done
    looked: dict[Problem, list[Choice]] = {}
    for trial in outcome.trials:
        looked.setdefault(trial.problem, []).append(trial.choice)
    found, built = [], set()
    for report in outcome.reports:
        choices, verdict = listed(report.problem), done.finals[report.problem.n]
        times = {choice: simulated.seconds(report.problem, choice) for choice in choices}
        best = min(times, key=times.__getitem__)
        every = np.array(list(times.values()))
        whole = exhaustive_s(executor, choices, every, built) + executor.race_s.get(report.problem, 0.0)
        found.append(
            Result(
                drawn,
                report.problem.n,
                len(choices),
                report.looked,
                times[verdict.winner] / times[best] - 1,
                min(times[choice] for choice in looked[report.problem]) / times[best] - 1,
                times[verdict.default] / times[best] - 1,
                report.search_s / whole,
                report.stopped,
                words(verdict.winner),
                words(best),
            )
        )
    return found


def words(choice: Choice) -> str:
    """A choice in a line."""
    knobs = " ".join(f"{name}={value}" for name, value in choice.build.knobs)
    team, process = choice.team, choice.process
    wait = f"{process.wait_policy}{process.spin or ''} {process.memory_policy}" if process else ""
    return f"{choice.build.variant} {knobs} | {team.threads if team else 1} '{team.placement if team else ''}' | {wait}"


def in_time(result: Result) -> bool:
    """Whether a problem met the goal in time."""
    return result.share <= (LARGE_SHARE if result.n >= LARGE_N else SMALL_SHARE)


def mean_regret(results: Sequence[Result]) -> float:
    """Geometric mean of time over optimum, less 1."""
    return float(np.exp(np.mean(np.log1p([result.regret for result in results]))) - 1)


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Lower quartile, median, upper quartile, 95th percentile, highest."""
    return tuple(float(v) for v in np.quantile(values, (0.25, 0.5, 0.75, 0.95, 1.0)))


def trials(machines: int, seed: int) -> Iterator[list[Result]]:
    """Machine after machine."""
    for number in range(machines):
        yield trial(draw(number, seed))
