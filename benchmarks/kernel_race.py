"""Taking turns: samples of our kernels, of the read floor and of PyTorch, one process running at a time.

Used by benchmarks/kernels.py. What cannot be timed raises Refused or is named with its reason; nothing is judged here.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from advisor.kernels.pool import WorkerPool
from advisor.records import Choice, Problem
from advisor.search.protocol import RACE_SAMPLE_S, single

LIMITS_S = (30.0, 600.0)
"""Least and most that one answer may take, whatever is left of the budget: it may hold a compilation and a check."""

LOOKS = 2
"""Further samples that a look takes of those that come near the best."""

SHORT_NS = 20e6
"""Calls up to this are cheap enough for two first samples."""

NEAR = 1.5
"""Times the best of its group up to which a first sample is near: one sample on a shared machine is no better."""

Sampler = Callable[[], float]
Groups = dict[str, list[str]]
"""Group -> names of samplers that compete in it."""


class Refused(Exception):
    """Something cannot be measured here; the text says why. Ends one row at most, never the run."""


class Looks(NamedTuple):
    """Least time in ns by name, and why the others have none."""

    ns: dict[str, float]
    failed: dict[str, str]

    def best(self, names: Iterable[str], keep: int = 1) -> list[str]:
        """The fastest of some names, fastest first; fewer where fewer have a time."""
        return sorted((name for name in names if name in self.ns), key=self.ns.__getitem__)[:keep]


class Deadline:
    """When the run must end, and what of it is left."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + budget_s

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self._clock())

    def limit_s(self) -> float:
        """The limit of one answer."""
        return min(max(self.left_s(), LIMITS_S[0]), LIMITS_S[1])


def sampler(pool: WorkerPool, problem: Problem, choice: Choice, deadline: Deadline) -> Sampler:
    """One sample of a choice a call, in ns: after a warm-up, many calls that fill RACE_SAMPLE_S, or one that is longer.

    It raises Refused when the choice has no time.
    """

    def sample() -> float:
        found = pool.measure(problem, choice, single(deadline.limit_s(), long_calls=True))
        if found.status != "ok":
            raise Refused(f"{choice.build.variant}: {found.status}: {found.reason}")
        return found.samples_ns[0]

    return sample


def look(samplers: dict[str, Sampler], groups: Groups) -> Looks:
    """A first sample of each, then more of those that come near the best of one of their groups."""
    ns: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, sample in samplers.items():
        try:
            ns[name] = first_sample(sample)
        except Refused as error:
            failed[name] = str(error)
    near = {name for names in groups.values() for name in _near(ns, names)}
    for name in sorted(near) * LOOKS:
        with contextlib.suppress(Refused):  # its first sample stands
            ns[name] = min(ns[name], samplers[name]())
    return Looks(ns, failed)


def first_sample(sample: Sampler) -> float:
    """A sample in ns, the lesser of two where samples are short: a single one may have met a neighbour."""
    time_ns = sample()
    return min(time_ns, sample()) if time_ns <= SHORT_NS else time_ns


def _near(ns: dict[str, float], names: Sequence[str]) -> list[str]:
    known = {name: ns[name] for name in names if name in ns}
    found = [name for name, time_ns in known.items() if time_ns <= NEAR * min(known.values())]
    return found if len(found) > 1 else []  # one alone is the best already


def take_turns(samplers: dict[str, Sampler], rounds: int, seed: int) -> dict[str, list[float]]:
    """One sample of each in every round, in another order each time. Raises Refused when one of them fails."""
    shuffle = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(rounds):
        for name in shuffle.sample(list(samplers), len(samplers)):
            samples[name].append(samplers[name]())
    return samples


# --- PyTorch's process ---


class TorchPeer:
    """PyTorch in a process of its own, stopped while it is not asked."""

    def __init__(self, cpus: Sequence[int]) -> None:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_peer.py")
        command = [sys.executable, script, ",".join(map(str, cpus))]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = str(self._read()["torch"])
        self._child.send_signal(signal.SIGSTOP)

    def _read(self) -> dict[str, Any]:
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            raise Refused("PyTorch's process ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def _ask(self, problem: Problem, **question: Any) -> dict[str, Any]:
        named = {"kernel": problem.kernel, "dtype": problem.dtype, "shape": dict(problem.shape), "n": problem.n}
        try:
            self._child.send_signal(signal.SIGCONT)
            print(json.dumps({**named, **question}), file=self._child.stdin, flush=True)
            answer = self._read()
            self._child.send_signal(signal.SIGSTOP)
        except BrokenPipeError as error:
            raise Refused("PyTorch's process ended") from error
        if "error" in answer:
            raise Refused(f"PyTorch: {answer['error']}")
        return answer

    def forms(self, problem: Problem) -> tuple[list[str], dict[str, str]]:
        """Forms that exist for a problem and agree, and why others are left out. Raises Refused."""
        answer = self._ask(problem, ask="forms")
        return answer["forms"], answer["left_out"]

    def sample(self, problem: Problem, form: str, threads: int) -> float:
        """Mean ns of one call. Raises Refused."""
        return float(self._ask(problem, ask="sample", form=form, threads=threads, seconds=RACE_SAMPLE_S)["ns"])

    def samplers(self, problem: Problem, counts: Iterable[int]) -> tuple[dict[str, Sampler], dict[str, str]]:
        """Every form with each thread count, and why forms are left out. Raises Refused."""
        names, left_out = self.forms(problem)

        def one(form: str, threads: int) -> Sampler:
            return lambda: self.sample(problem, form, threads)

        return {f"torch {form} {count}T": one(form, count) for form in names for count in sorted(set(counts))}, left_out

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.communicate()


def torch_peer(cpus: Sequence[int]) -> TorchPeer | None:
    """PyTorch's process on some CPUs; None where PyTorch is not installed."""
    try:
        return TorchPeer(cpus)
    except Refused:
        return None
