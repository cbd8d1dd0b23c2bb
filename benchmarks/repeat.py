"""Tune again and again: how often does the winner flip, and did the race call those a tie?

    python benchmarks/repeat.py [--kernel decode] [--n 1024,16384] [--tunes 4] [--budget 40] [--seed-step 1]
                                [--from-nothing] [--json FILE]

Tunes follow one another in one folder, as a user's do: what the one before it picked races in the next, and stays where
the race cannot tell it apart. `--from-nothing`: each in a folder of its own. Compiled variants are shared. Each tune is
compared with the one before it: a flip at an n is `tie` where one of the two races had both winners and could not tell
them apart, `found` where the first race did not have the second winner and the second race found it faster, `raced`
where both could tell (one of the two was wrong, or the machine changed), `apart` where neither race had both. Bar: ties
only. `--seed-step 0` repeats with one seed, so that only the machine differs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from advisor import tuning
from advisor.arguments import sizes
from advisor.records import Choice, Verdict
from advisor.search.known import same_program
from advisor.search.request import Silent

Finals = Mapping[int, Verdict]
"""n -> the final verdict of one tune."""

KINDS = ("same", "tie", "found", "raced", "apart")


class Compared(NamedTuple):
    """One n of two successive tunes; `ratio` is the second winner's time over the first's, None where never raced."""

    n: int
    kind: str
    ratio: float | None


def tune_once(kernel: str, wanted: Sequence[int], budget_s: float, seed: int, home: str) -> dict[int, Verdict]:
    """The final verdicts of a tune that finds in `home` what earlier ones left."""
    os.environ["ADVISOR_HOME"] = home
    asked = tuning.TuneRequest((kernel,), tuple(wanted), budget_s=budget_s, seed=seed)
    (result,) = tuning.tune(asked, Silent())
    return {v.problem.n: v for v in result.outcome.verdicts if v.purpose == "final"}


def compared(first: Finals, second: Finals) -> list[Compared]:
    """What became of every n that both tunes have an answer for."""
    return [_one(n, first[n], second[n]) for n in sorted(first.keys() & second.keys())]


def _one(n: int, first: Verdict, second: Verdict) -> Compared:
    before, after = same_program(first.winner), same_program(second.winner)
    if before == after:
        return Compared(n, "same", 1.0)
    seen = [(_standing(first, after), 1.0), (_standing(second, before), -1.0)]
    raced = [(outcome, ratio**power) for found, power in seen if found for outcome, ratio in [found]]
    if not raced:
        return Compared(n, "apart", None)
    outcomes = [outcome for outcome, _ in raced]
    kind = "tie" if "tie" in outcomes else "found" if not seen[0][0] and outcomes == ["slower"] else "raced"
    return Compared(n, kind, math.exp(sum(math.log(ratio) for _, ratio in raced) / len(raced)))


def _standing(verdict: Verdict, choice: Choice) -> tuple[str, float] | None:
    """How a choice stood beside the winner of a race: outcome and ratio of times; None where it was not timed."""
    found = [(s.outcome, s.ratio) for s in verdict.standings if same_program(s.choice) == choice and s.ratio]
    return min(found, key=lambda one: one[1]) if found else None


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a share. Source: Wilson, JASA 22 (1927)."""
    if not count:
        return 0.0, 1.0
    z, share = 1.959964, hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def summary(pairs: Sequence[Sequence[Compared]]) -> dict[str, object]:
    """The flip rate over all pairs of successive tunes, and of what kind the flips were."""
    every = [one for pair in pairs for one in pair]
    counts = Counter(one.kind for one in every)
    flips = len(every) - counts["same"]
    return {
        "compared": len(every),
        "flips": flips,
        "flip_rate": flips / len(every) if every else None,
        "flip_rate_ci95": wilson(flips, len(every)),
        "kinds": {kind: counts[kind] for kind in KINDS},
        "only_ties": counts["found"] == counts["raced"] == counts["apart"] == 0,
        "worst_ratio": max((max(one.ratio, 1 / one.ratio) for one in every if one.ratio), default=None),
        "rows": [[one._asdict() for one in pair] for pair in pairs],
    }


def shown(found: Mapping[str, object]) -> str:
    """The summary for people."""
    low, high = found["flip_rate_ci95"]  # type: ignore[misc]
    kinds, worst = found["kinds"], found["worst_ratio"]
    lines = [f"{found['flips']} of {found['compared']} winners flipped, Wilson 95 % {low:.0%} to {high:.0%}"]
    lines += [f"  {kind:<6} {count}" for kind, count in kinds.items()]  # type: ignore[attr-defined]
    lines += [f"largest difference between two winners of one n that were raced: {worst - 1:.1%}"] if worst else []
    return "\n".join([*lines, f"ties only: {'yes' if found['only_ties'] else 'no'}"])


def main() -> None:
    """Tune, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="decode")
    parser.add_argument("--n", default="1024,16384")
    parser.add_argument("--tunes", type=int, default=4)
    parser.add_argument("--budget", type=float, default=40.0, help="seconds of one tune")
    parser.add_argument("--seed-step", type=int, default=1)
    parser.add_argument("--from-nothing", action="store_true", help="each tune in a folder of its own")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args()
    tunes: list[dict[int, Verdict]] = []
    with tempfile.TemporaryDirectory(prefix="advisor-repeat-") as folder:
        for k in range(asked.tunes):
            home = os.path.join(folder, str(k) if asked.from_nothing else "home")
            tunes.append(tune_once(asked.kernel, sizes(asked.n), asked.budget, k * asked.seed_step, home))
            winners = ", ".join(f"n={n} {v.winner.build.variant}" for n, v in tunes[-1].items())
            print(f"tune {k + 1}: {winners}", flush=True)
    found = summary([compared(first, second) for first, second in pairwise(tunes)])
    print(shown(found))
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
