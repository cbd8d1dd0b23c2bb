"""The tuner on simulated machines drawn around a published one: how near to the optimum, in what share of the time.

    python benchmarks/simulated.py [--machines 200] [--first 0] [--seed 0] [--worst 8] [--again log|nothing]
                                   [--json FILE]

Regret is by the model, without noise; the tuner sees recorded noise. tests/simulated_machine.py says what the model is.
Some three seconds a machine.

With `--again` every machine is tuned a second time, with another seed and other noise, beside the log of the first tune
or from nothing: how often does the winner flip, and did a race call those a tie (as benchmarks/repeat.py judges it)?
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

from repeat import Compared, compared, shown, summary
from simulated_run import FAR_REGRET, SIZES, Drawn, Result, draw, in_time, judged, mean_regret, quantiles, trial, twice

HEADS = ("", "quartile", "median", "quartile", "95th", "worst")


class Found(NamedTuple):
    """Results of first tunes and of second ones, and what became of the winners."""

    first: list[Result]
    second: list[Result]
    compared: list[list[Compared]]


def run(machines: int, first: int, seed: int, again: str | None) -> Found:
    """Tune machine after machine, with progress on standard error."""
    found = Found([], [], [])
    begun = time.monotonic()
    for done, number in enumerate(range(first, first + machines), 1):
        _one(found, draw(number, seed), again)
        left = (time.monotonic() - begun) / done * (machines - done)
        print(f"\r{done}/{machines} machines, {left:.0f} s left   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _one(found: Found, drawn: Drawn, again: str | None) -> None:
    if again is None:
        found.first.extend(trial(drawn))
        return
    first, second = twice(drawn, again == "nothing")
    found.first.extend(judged(first))
    found.second.extend(judged(second))
    found.compared.append(compared(first.finals, second.finals))


def show_again(found: Found) -> None:
    """Print how often winners flipped, and the regret of the second tunes."""
    print(f"\ntuned again: {shown(summary(found.compared))}")
    print(f"geometric mean of regret {mean_regret(found.second):.2%}; {goals(found.second)}")


def spread(name: str, values: Sequence[float], form: str) -> str:
    """A line of quantiles."""
    return f"{name:26}" + "".join(f"{format(value, form):>10}" for value in quantiles(values))


def show(found: Sequence[Result]) -> None:
    """Print the distributions, of all and of each kernel and n."""
    print(f"{HEADS[0]:26}" + "".join(f"{head:>10}" for head in HEADS[1:]))
    print(spread("regret", [r.regret for r in found], ".2%"))
    print(spread("  lost by the search", [r.seen for r in found], ".2%"))
    print(spread("regret of the DEFAULT", [r.default_regret for r in found], ".0%"))
    print(spread("first looks", [r.looked for r in found], ".0f"))
    print(spread("  share of the space", [r.looked / r.space for r in found], ".1%"))
    print(spread("share of exhaustive time", [r.share for r in found], ".3f"))
    print(f"geometric mean of regret {mean_regret(found):.2%}; {goals(found)}")
    for kernel, sizes in SIZES.items():
        for n in sizes:
            few = [r for r in found if r.drawn.kernel == kernel and r.n == n]
            if few:
                print(f"  {kernel:8} n={n:<7} geometric mean {mean_regret(few):6.2%}; {goals(few)}")


def goals(found: Sequence[Result]) -> str:
    """How often each goal was met."""
    near, fast = sum(r.regret <= FAR_REGRET for r in found), sum(in_time(r) for r in found)
    both = sum(r.regret <= FAR_REGRET and in_time(r) for r in found)
    return f"of {len(found)}: regret <= {FAR_REGRET:.0%} {near}, in time {fast}, both {both}"


def show_worst(found: Sequence[Result], count: int) -> None:
    """Print the problems with the highest regret: what was taken, and what is best."""
    for r in sorted(found, key=lambda r: -r.regret)[:count]:
        shape = " x ".join(map(str, r.drawn.shape))
        print(f"\nmachine {r.drawn.number} ({shape}), {r.drawn.kernel} n={r.n}: {r.regret:.1%}, search {r.seen:.1%}")
        print(f"  {r.looked} looks of {r.space}: {r.stopped}\n  took {r.winner}\n  best {r.optimum}")


def main() -> None:
    """Run, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first machine; 0 has the published shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", type=int, default=8, help="how many of the worst problems are shown")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--again", choices=("log", "nothing"), help="tune twice; what the second tune finds there")
    asked = parser.parse_args()
    every = run(asked.machines, asked.first, asked.seed, asked.again)
    found = every.first
    show(found)
    show_worst(found, asked.worst)
    if asked.again:
        show_again(every)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump([{**r._asdict(), "drawn": r.drawn._asdict()} for r in found], file, indent=1)


if __name__ == "__main__":
    main()
