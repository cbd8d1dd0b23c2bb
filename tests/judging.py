"""The judge judged: races between choices whose true times are known. Used by tests and by benchmarks/judge.py."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fake import FakeExecutor, Noise, recorded_noise, synthetic_noise

from advisor.kernels.executor import Ask, Executor
from advisor.records import Build, Choice, Measurement, Problem, Process, Team
from advisor.search.race import Heat, RaceOptions, race

PROBLEM = Problem("decode", "float32", (("batch", 2), ("head_dim", 64)), 1024)


class Tally(NamedTuple):
    """Races by outcome. `false`: of equals, at least one called slower. `right`: the slower one called slower."""

    races: int
    called: int
    right: int
    wrong: int
    rounds: int


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a share. Source: Wilson, JASA 22 (1927)."""
    z, share = 1.959964, hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def contender(number: int, threads: int = 2) -> Choice:
    """A choice that differs from its rivals in a knob."""
    build = Build("split", "0" * 12, (("ADV_BLOCK", number),), "gcc", "native")
    return Choice(build, Team(threads, ""), Process("libgomp", "default", None, "default"))


def noises(races: int) -> dict[str, list[Noise]]:
    """Noise sources by name, one noise a race: recorded series from random offsets, and synthetic."""
    rng = random.Random(0)
    found: dict[str, list[Noise]] = {}
    for series, name in enumerate(("n=1k 1T", "n=1k 2T", "n=16k 2T", "n=256k 2T")):
        found[f"recorded {name}"] = [recorded_noise(series, rng.randrange(1000)) for _ in range(races)]
    found["synthetic 5 %, lucky"] = [synthetic_noise(seed) for seed in range(races)]
    return found


class Planted:
    """An executor that scales the samples of one choice, so that a true difference is known."""

    def __init__(self, executor: Executor, real: Callable[[Choice], Choice], factors: dict[Choice, float]) -> None:
        self.executor, self.real, self.factors = executor, real, factors

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        found = self.executor.measure(problem, self.real(choice), ask)
        samples = tuple(sample * self.factors.get(choice, 1.0) for sample in found.samples_ns)
        return found._replace(choice=choice, samples_ns=samples)

    def close(self) -> None:
        self.executor.close()


def one_race(
    executor: Executor, choices: Sequence[Choice], seed: int, problem: Problem = PROBLEM
) -> tuple[set[Choice], int]:
    """The choices called slower, and the rounds it took."""
    verdict = race(executor, Heat(problem, tuple(choices), choices[0]), RaceOptions(seed=seed))
    if verdict is None:
        raise RuntimeError("every choice failed")
    return {s.choice for s in verdict.standings if s.outcome == "slower"}, verdict.rounds


def judge_fake(noise_of: Sequence[Noise], difference: float, contenders: int = 2) -> Tally:
    """Race equals but for the last choice, which is slower by `difference`, once for every noise."""
    choices = [contender(k) for k in range(contenders)]
    called = right = wrong = rounds = 0
    for seed, noise in enumerate(noise_of):
        slow = choices[-1]
        executor = FakeExecutor(lambda _, c, slow=slow: 1e6 * (1 + difference * (c == slow)), noise)
        slower, took = one_race(executor, choices, seed)
        called += bool(slower)
        right += slow in slower
        wrong += bool(slower - {slow})
        rounds += took
    return Tally(len(noise_of), called, right, wrong, rounds)
