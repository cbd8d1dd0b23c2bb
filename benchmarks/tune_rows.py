"""One row of benchmarks/tune.py: ours, the exhaustive pass, the peers in equal seconds, one fresh race of them all."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tune_kernel_tuner as kernel_tuner

from advisor.codec import to_json
from advisor.device import is_device
from advisor.kernels.executor import Ask, Executor
from advisor.kernels.pool import WorkerPool
from advisor.records import Choice, Measurement, Problem
from advisor.search import protocol
from advisor.search.exhaustive import CHUNK, RIVALS
from advisor.search.look import Place, group_key, quiet_optuna
from advisor.search.plan import costs, is_large, most_samples
from advisor.search.race import Heat, RaceOptions, race
from advisor.search.request import Request
from advisor.search.run import Run, ranked, value_of
from advisor.search.sampler import Dimensions
from advisor.search.samples import excess
from advisor.search.tune import Neighbour, one

FRESH_ROUNDS, FRESH_SAMPLE_S, LEAST_FRESH = 60, 0.004, 12
"""Rounds of the race that judges: as many as time allows, at least 12; samples twice as long as in our own races."""

GRACE_S, FEWEST_FRESH = 30.0, 4
"""So long over its time it still goes on to a dozen rounds; then four are enough, the least that can be judged: where a
peer chose one thread for a large problem, a round takes minutes."""

PEERS = ("TPE", "random")
POOLS = ("ours", "exhaustive", *PEERS)
"""Each has workers of its own, so that nobody finds inputs made, threads pinned or builds verified by another."""


class Spent(NamedTuple):
    """What a way of choosing found: its choice, first looks, seconds, why it ended or failed."""

    choice: Choice | None
    trials: int
    seconds: float
    why: str = ""


class Exhausted(NamedTuple):
    """The exhaustive pass: its best choices, best first, how much it looked at, seconds, whether it came to its end."""

    best: tuple[Choice, ...]
    looked: int
    seconds: float
    whole: bool


class Ground(NamedTuple):
    """Where a row is made: our run, a pool for each contender, the interpreter of Kernel Tuner or why there is none."""

    run: Run
    pools: dict[str, WorkerPool]
    python: str
    absent: str


Clock = Callable[[], float]


# --- the contenders ---


def ours(run: Run, problem: Problem, before: Neighbour | None) -> tuple[Spent, Neighbour | None]:
    """Our search and race; what it tells the next n."""
    after = one(run, problem, before, [problem])
    report = run.reports[-1]
    verdict = next((v for v in run.verdicts if v.problem == problem), None)
    choice = verdict.winner if verdict else None
    return Spent(choice, report.looked, report.search_s, report.stopped), after


def exhaustive(executor: Executor, request: Request, place: Place, until: float) -> Exhausted:
    """The same first look at every choice, then the same race of the best, as a pass of its own.

    Args:
        executor: a pool of its own, which starts its workers, makes inputs and verifies as our search did.
        request: for the limits.
        place: problem, choices, DEFAULT.
        until: on the monotonic clock; a pass that is cut short looks at large teams first.
    """
    begun, looks = time.monotonic(), list[Measurement]()
    order = sorted(place.choices, key=lambda c: (-group_key(c)[1], group_key(c)))
    for first in range(0, len(order), CHUNK):
        chunk = order[first : first + CHUNK]
        if isinstance(executor, WorkerPool):
            executor.prepare(place.problem, chunk)
        for choice in chunk:
            if time.monotonic() >= until:
                break
            best_ns = min((value for look in looks if (value := value_of(look)) is not None), default=None)
            ask = protocol.look(False, request.options.trial_limit_s, best_ns)
            looks.append(executor.measure(place.problem, choice, ask))
    best = tuple(measurement.choice for measurement in ranked(looks)[:RIVALS])
    if best:
        large = is_large(request.spec, place.problem, is_device(request.machine.limits_id))
        samples = most_samples(large, len(order), costs(looks))
        verdict = race(executor, Heat(place.problem, best, place.default), RaceOptions(samples=samples, deadline=until))
        best = tuple(dict.fromkeys(([verdict.winner] if verdict else []) + list(best)))
    return Exhausted(best, len(looks), time.monotonic() - begun, len(looks) == len(order))


def peer(executor: Executor, request: Request, place: Place, name: str, seconds: float) -> Spent:
    """Optuna's TPE or random over the same dimensions, first looks as ours, the best-looking is taken.

    What is not in the list of valid choices is told as failed at once; what was measured before is told from memory.
    """
    import optuna

    makers = {"TPE": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    dimensions, begun = Dimensions(place.choices), time.monotonic()
    known: dict[int, float | None] = {}
    with quiet_optuna():
        study = optuna.create_study(sampler=makers[name](seed=request.options.seed))
        while time.monotonic() - begun < seconds and len(known) < len(place.choices):
            trial = study.ask(dimensions.distributions)
            index = dimensions.index(trial.params)
            if index is not None and index not in known:
                known[index] = _look(executor, request, place, place.choices[index], known)
            value = None if index is None else known[index]
            study.tell(trial, value, state=None if value is not None else optuna.trial.TrialState.FAIL)
    good = {index: value for index, value in known.items() if value is not None}
    choice = place.choices[min(good, key=lambda i: good[i])] if good else None
    return Spent(choice, len(known), time.monotonic() - begun)


def _look(
    executor: Executor, request: Request, place: Place, choice: Choice, known: dict[int, float | None]
) -> float | None:
    best_ns = min((value for value in known.values() if value is not None), default=None)
    ask = protocol.look(False, request.options.trial_limit_s, best_ns)
    return value_of(executor.measure(place.problem, choice, ask))


def by_kernel_tuner(ground: Ground, place: Place, seconds: float) -> dict[str, Spent]:
    """Kernel Tuner's strategies in so many seconds each."""
    if ground.absent:
        return {}
    request = ground.run.request
    made = kernel_tuner.job(request.machine, request.spec, request.variants, place.problem, place.choices)
    found = {}
    for strategy in kernel_tuner.STRATEGIES:
        got = kernel_tuner.run(made, request.spec, place.problem, strategy, seconds, ground.python)
        found[f"Kernel Tuner {strategy}"] = Spent(got["choice"], got["trials"], got["seconds"], got["reason"])
    return found


# --- the judge ---


def fresh_race(
    executor: Executor, problem: Problem, choices: Sequence[Choice], until: float, seed: int = 0
) -> dict[Choice, list[float]]:
    """Fresh samples of every choice, interleaved in shuffled order, nobody dropped but choices that failed."""
    rng, samples = random.Random(seed), {choice: list[float]() for choice in choices}
    for done in range(FRESH_ROUNDS):
        late = time.monotonic() - until
        if late >= 0 and done >= (LEAST_FRESH if late < GRACE_S else FEWEST_FRESH):
            break
        order = list(samples)
        rng.shuffle(order)
        for choice in order:
            found = executor.measure(problem, choice, Ask(1, 60.0, FRESH_SAMPLE_S))
            if found.status == "ok" and found.samples_ns:
                samples[choice].append(found.samples_ns[0])
            else:
                del samples[choice]
    return samples


def regrets(samples: dict[Choice, list[float]], picks: dict[str, Choice | None]) -> dict[str, list[float] | None]:
    """Contender -> regret and the ends of its 95 % interval: its time over the best of all, judged on other rounds."""
    listed = list(samples)
    rows = [samples[choice] for choice in listed]
    found: dict[str, list[float] | None] = {}
    for name, choice in picks.items():
        if choice is None or choice not in samples or len(samples[choice]) < 4:
            found[name] = None
            continue
        between = excess(rows, listed.index(choice), 0.05, 0)
        found[name] = [math.exp(value) for value in (between.centre, between.low, between.high)]
    return found


# --- a row ---


def _plain(found: Spent) -> dict[str, Any]:
    return {**found._asdict(), "choice": to_json(found.choice) if found.choice else None}


def row(ground: Ground, place: Place, mine: Spent, ends: tuple[float, float]) -> dict[str, Any]:
    """One row, plain data: the exhaustive pass and the peers after our search, then the fresh race.

    Args:
        ground: pools and request.
        place: problem, choices, DEFAULT.
        mine: what our search found.
        ends: on the monotonic clock: of the exhaustive pass, and of the fresh race.
    """
    request, problem = ground.run.request, place.problem
    whole = exhaustive(ground.pools["exhaustive"], request, place, ends[0])
    spent = {"ours": mine}
    spent |= {name: peer(ground.pools[name], request, place, name, mine.seconds) for name in PEERS}
    spent |= by_kernel_tuner(ground, place, mine.seconds)
    picks: dict[str, Choice | None] = {name: found.choice for name, found in spent.items()}
    picks["exhaustive"] = whole.best[0] if whole.best else None
    racing = dict.fromkeys([*(choice for choice in picks.values() if choice), *whole.best])
    samples = fresh_race(ground.pools["ours"], problem, tuple(racing), ends[1], request.options.seed)
    return {
        "kernel": problem.kernel,
        "n": problem.n,
        "space": len(place.choices),
        "exhaustive": {"looked": whole.looked, "seconds": whole.seconds, "whole": whole.whole},
        "spent": {name: _plain(found) for name, found in spent.items()},
        "share": mine.seconds / whole.seconds if whole.seconds else None,
        "rounds": max(map(len, samples.values()), default=0),
        "regret": regrets(samples, picks),
    }
