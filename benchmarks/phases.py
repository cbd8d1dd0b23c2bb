"""Where the time of one tune goes: starting, builds, first looks, race, neighbour, checks, sizes held out.

    python benchmarks/phases.py [--kernel decode] [--n 16384] [--budget SECONDS] [--seed 0] [--exhaustive] [--json FILE]

A tune from nothing, in a folder of its own; compiled variants are shared with other runs, so run it twice and believe
the second. The first look of each process part is apart: a worker makes its inputs, checks the problem and warms up
then, once, however many looks follow. Races are single samples, readings of the reference among them. `deciding` is
what is left: the sampler, the log, learning, saving.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from advisor import tuning
from advisor.arguments import sizes
from advisor.kernels import executors
from advisor.kernels.executor import Ask
from advisor.records import Choice, Measurement, Problem
from advisor.search.request import Silent

HELD_OUT = "held-out n"
"""The stage that tuning calls so."""


class Spent(NamedTuple):
    """One call to the executor: of which phase, when it began after the tune did, how long it took; in seconds."""

    phase: str
    at_s: float
    seconds: float


class Stages(Silent):
    """Remembers the stage under way."""

    def __init__(self) -> None:
        self.now = "start"

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins."""
        self.now = name


class Timed:
    """An executor that passes everything on to another, and notes what it took."""

    def __init__(self, pool: Any, stages: Stages, spent: list[Spent], begun: float) -> None:
        self._pool, self._stages, self._spent, self._begun = pool, stages, spent, begun
        self._seen: set[object] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def __enter__(self) -> Timed:
        self._pool.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.__exit__(*raised)

    def _note(self, phase: str, at: float) -> None:
        now = time.monotonic()
        self._spent.append(Spent(phase, at - self._begun, now - at))

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        """Pass on, and note the phase that the question belongs to."""
        at = time.monotonic()
        found: Measurement = self._pool.measure(problem, choice, ask)
        self._note(self._phase(problem, choice, ask), at)
        return found

    def _phase(self, problem: Problem, choice: Choice, ask: Ask) -> str:
        if self._stages.now == HELD_OUT:
            return "sizes held out"
        if not ask.quiet:
            return "beside a neighbour"
        if ask.samples == 1:
            return "races"
        new = (problem, choice.process) not in self._seen
        self._seen.add((problem, choice.process))
        return "first look of a process part" if new else "other first looks"

    def prepare(self, problem: Problem, choices: Sequence[Choice]) -> Any:
        """Pass on."""
        at = time.monotonic()
        found = self._pool.prepare(problem, choices)
        self._note("sizes held out" if self._stages.now == HELD_OUT else "builds, starting workers", at)
        return found

    def check(self, problem: Problem, choice: Choice, limit_s: float) -> Measurement:
        """Pass on."""
        at = time.monotonic()
        found: Measurement = self._pool.check(problem, choice, limit_s)
        self._note("winners in a fresh process", at)
        return found


def timed_tune(asked: tuning.TuneRequest) -> tuple[tuning.TuneResult, list[Spent], float]:
    """One tune with a note of every call to its executors; and the seconds it took in all."""
    stages, spent, begun = Stages(), list[Spent](), time.monotonic()
    true = executors.pool_for
    executors.pool_for = lambda *args: Timed(true(*args), stages, spent, begun)  # type: ignore[assignment,return-value]
    try:
        (result,) = tuning.tune(asked, stages)
    finally:
        executors.pool_for = true
    return result, spent, time.monotonic() - begun


def summary(spent: Sequence[Spent], total_s: float) -> dict[str, dict[str, float]]:
    """Phase -> calls, seconds, share of the whole; in the order the phases began."""
    found: dict[str, dict[str, float]] = {}
    if spent:
        found["probing, who else is here"] = {"calls": 1, "seconds": spent[0].at_s}
    for one in spent:
        phase = found.setdefault(one.phase, {"calls": 0, "seconds": 0.0})
        phase["calls"] += 1
        phase["seconds"] += one.seconds
    known = sum(phase["seconds"] for phase in found.values())
    found["deciding"] = {"calls": 0, "seconds": max(0.0, total_s - known)}
    return {name: {**phase, "share": phase["seconds"] / total_s} for name, phase in found.items()}


def shown(found: dict[str, dict[str, float]], total_s: float) -> str:
    """The summary for people."""
    form = "{:30} {:6.0f} {:8.2f} s {:6.1%}"
    rows = [form.format(name, phase["calls"], phase["seconds"], phase["share"]) for name, phase in found.items()]
    return "\n".join([*rows, f"{'whole tune':30} {'':6} {total_s:8.2f} s"])


def main() -> None:
    """Tune, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="decode")
    parser.add_argument("--n", default="16384")
    parser.add_argument("--budget", type=float, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exhaustive", action="store_true", help="measure the whole space too")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="advisor-phases-") as home:
        os.environ["ADVISOR_HOME"] = home
        wanted = tuning.TuneRequest(
            (asked.kernel,), sizes(asked.n), budget_s=asked.budget, seed=asked.seed, exhaustive=asked.exhaustive
        )
        result, spent, total_s = timed_tune(wanted)
    found = summary(spent, total_s)
    print(shown(found, total_s))
    for r in result.outcome.reports:
        line = f"n = {r.problem.n}: {r.looked} of {r.space_size} looked at, search and race {r.search_s:.2f} s"
        print(line + (f", whole space {r.exhaustive_s:.2f} s" if r.exhaustive_s else "") + f"; {r.stopped}")
    print("\n".join(note for note in result.notes if "not quiet" in note))
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"phases": found, "seconds": total_s, "calls": [one._asdict() for one in spent]}, file, indent=1)


if __name__ == "__main__":
    main()
