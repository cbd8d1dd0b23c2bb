"""The judge judged: how often the race calls equals different, and how often it finds a planted difference.

    python benchmarks/judge.py [--races 200] [--json FILE]       on noise recorded on a real machine, and synthetic
    python benchmarks/judge.py --real [--races 50] [--n 1024]    on a real kernel of this machine

Differences are planted by scaling the samples of one of two names of the same choice.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

from judging import PROBLEM, Planted, Tally, contender, judge_fake, noises, one_race, wilson

from advisor.records import Choice

DIFFERENCES = (0.0, 0.015, 0.03, 0.05)


def fake_tallies(races: int) -> dict[str, dict[str, Tally]]:
    """Noise -> case -> tally, on the fake executor."""
    found = {}
    for name, sources in noises(races).items():
        cases = {f"{difference:.1%}": judge_fake(sources, difference) for difference in DIFFERENCES}
        found[name] = {**cases, "0.0% of six": judge_fake(sources, 0.0, contenders=6)}
    return found


def real_tallies(races: int, sizes: list[int]) -> dict[str, dict[str, Tally]]:
    """Problem -> case -> tally, on the DEFAULT choice of this machine under two names."""
    from advisor.kernels.pool import WorkerPool
    from advisor.kernels.registry import spec
    from advisor.kernels.variant import variants
    from advisor.search.space import default_choice, space_options
    from advisor.topology.probe import probe

    machine, kernel, found = probe(), spec("decode"), {}
    known = variants("decode")
    with WorkerPool(machine, kernel, known) as pool:
        for n in sizes:
            problem = kernel.problem(n)
            choice = default_choice(machine, kernel, known, problem, space_options(machine))
            names = (contender(0), contender(1))

            def real(_: Choice, choice: Choice = choice) -> Choice:
                return choice

            def tally(difference: float, problem=problem, names=names, real=real) -> Tally:
                return _planted(Planted(pool, real, {names[1]: 1 + difference}), names, problem, races)

            found[f"decode n={n} {choice.team.threads if choice.team else 1}T"] = _cases(tally)
    return found


def _cases(tally: Callable[[float], Tally]) -> dict[str, Tally]:
    return {f"{difference:.1%}": tally(difference) for difference in DIFFERENCES}


def _planted(executor: Planted, names: tuple[Choice, ...], problem=PROBLEM, races: int = 50) -> Tally:
    called = right = wrong = rounds = 0
    for seed in range(races):
        slower, took = one_race(executor, names, seed, problem)
        called += bool(slower)
        right += names[1] in slower
        wrong += names[0] in slower
        rounds += took
    return Tally(races, called, right, wrong, rounds)


def show(found: dict[str, dict[str, Tally]]) -> None:
    """Print the table."""
    print(f"{'noise':28} {'planted':12} {'found or false':>16} {'Wilson 95 %':>16} {'wrong way':>10} {'rounds':>7}")
    for name, cases in found.items():
        for case, tally in cases.items():
            equal = case.startswith("0.0%")
            hits = tally.called if equal else tally.right
            low, high = wilson(hits, tally.races)
            wrong = "-" if equal else f"{tally.wrong / tally.races:.1%}"
            share = f"{hits / tally.races:.1%} {'false' if equal else 'found'}"
            print(
                f"{name:28} {case:12} {share:>16} {f'{low:.1%} - {high:.1%}':>16} {wrong:>10} "
                f"{tally.rounds / tally.races:7.1f}"
            )


def main() -> None:
    """Judge, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--races", type=int, default=200)
    parser.add_argument("--real", action="store_true", help="a real kernel instead of recorded noise")
    parser.add_argument("--n", default="1024,65536", help="sizes for --real")
    parser.add_argument("--json", help="write the tallies to this file")
    asked = parser.parse_args()
    sizes = [int(word) for word in asked.n.split(",")]
    found = real_tallies(asked.races, sizes) if asked.real else fake_tallies(asked.races)
    show(found)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(
                {name: {c: t._asdict() for c, t in cases.items()} for name, cases in found.items()}, file, indent=1
            )


if __name__ == "__main__":
    main()
