"""Transfer between sub-machines: parts of one machine, made by affinity, each tuned on its own and then left out.

    python benchmarks/submachines.py OUT [--cpus 1,2,4,8,12,16] [--budget 11] [--decode 1k,16k,128k]
                                     [--forward 128,512,2048] [--limit 270]

Every part has limits of its own, and so tables of its own. Then for each part, knowing the tables and logs of the
others alone: the choice of the ladder at 0 trials (`advisor recommend` on a machine without tables), of the nearest
part and of the best common choice (both with the same share of the CPUs), and the DEFAULT, raced interleaved with the
part's own tuned choice. Regret: time over that of the own choice; below 1 the own tuning missed something. All parts
are the same silicon: caches, cores and memory are shared, so this says how threads carry over, not how machines do.

What is in OUT is kept: a stopped run goes on where it ended. Exit status 0 done, 1 refused, 3 partly done.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advisor.arguments import sizes
from advisor.errors import AdvisorError, BadInput

WAYS = ("transfer", "nearest", "common", "default")
RACE_S = 4.0
"""Longest race of one n, its builds apart."""

RESAMPLES = 2000


class Row(NamedTuple):
    """One race on one part. `ratios`: way -> time over that of the part's own choice; absent where it had none."""

    cpus: int
    kernel: str
    n: int
    rung: str
    rounds: int
    ratios: dict[str, float]


# --- one part, in a process of its own ---


def parts(asked: Sequence[int]) -> list[tuple[int, ...]]:
    """The CPUs of each part: the first so many in reach. Those that need more than there are, are left out."""
    reach = sorted(os.sched_getaffinity(0))
    return [tuple(reach[:count]) for count in asked if count <= len(reach)]


def started(words: Sequence[str], cpus: Sequence[int], home: Path, limit_s: float) -> int:
    """Run a Python program on some CPUs with a home of its own; its exit status, 124 where it ran out of time."""
    environment = {**os.environ, "ADVISOR_HOME": str(home)}
    bind = ["taskset", "-c", ",".join(map(str, cpus))]
    try:
        command = [*bind, sys.executable, *words]
        return subprocess.run(command, env=environment, timeout=limit_s, check=False, stdout=sys.stderr).returncode
    except subprocess.TimeoutExpired:
        return 124


def tune(out: Path, cpus: Sequence[int], asked: argparse.Namespace, left_s: float) -> None:
    """Tune both kernels on a part, what is not there yet."""
    home = out / f"home-{len(cpus)}"
    for kernel, wanted in (("decode", asked.decode), ("forward", asked.forward)):
        if left_s > 0 and not list(home.glob(f"machines/*/{kernel}.table.json")):
            words = ["-m", "advisor.cli", "tune", "--kernel", kernel, "--n", wanted, "--budget", f"{asked.budget:g}s"]
            began = time.monotonic()
            status = started(words, cpus, home, min(left_s, 3 * asked.budget + 20))
            left_s -= time.monotonic() - began
            print(f"{len(cpus)} CPUs, {kernel}: tuned, status {status}, {time.monotonic() - began:.0f} s", flush=True)


def raced(out: Path, kernel: str, wanted: Sequence[int], others: Sequence[str]) -> Iterator[Row]:
    """The races of one kernel on the part that this process runs on."""
    from advisor.kernels.executors import pool_for
    from advisor.kernels.variant import for_machine
    from advisor.policy.learn import choose
    from advisor.policy.store import load_table
    from advisor.policy.transfer import transferred
    from advisor.probing import folder_of
    from advisor.search.elsewhere import machines
    from advisor.tuning_result import best_section, of_shape
    from advisor.untuned import here_of, machine_asked

    machine = machine_asked(None)
    here = here_of(kernel, machine, True)
    known = machines(kernel, machine, [str(out / name / "machines") for name in others])
    own, carried = load_table(os.path.join(folder_of(machine), f"{kernel}.table.json")), transferred(here, known)
    with pool_for(machine, here.spec, for_machine(here.variants, machine), 0) as pool:
        for n in wanted:
            problem = here.spec.problem(n)
            tuned = choose(best_section(of_shape(own, problem), n), n)
            choices: dict[str, Any] = {"own": tuned, **_baselines(here, known, problem)}
            rung = ""
            if carried is not None:
                section = _section_of(carried.sections, n)
                row = next(row for row in section.rows if row.low <= n <= row.high)
                choices["transfer"], rung = row.choice, str(dict(row.extra)["origin"]["rung"])
            times = _race(pool, problem, choices)
            if times is not None:
                rounds, ratios = times
                yield Row(len(machine.allowed_cpus), kernel, n, rung, rounds, ratios)


def _section_of(sections: Sequence[Any], n: int) -> Any:
    """The process part that a transferred table says wins at n, else its first."""
    won = [s for s in sections if n in dict(s.wins).get("latency", ())]
    return (won or list(sections))[0]


def _baselines(here: Any, known: Sequence[Any], problem: Any) -> dict[str, Any]:
    """The DEFAULT, and what the nearest and the best common choice take with the same share of the CPUs."""
    from advisor.kernels.variant import for_machine
    from advisor.search.portable import by_program, listed
    from advisor.search.rungs import Asked, Way, guessed
    from advisor.search.space import default_choice, space
    from advisor.search.traits import spot_of

    ground = (here.machine, here.spec, for_machine(here.variants, here.machine), problem, here.options)
    programs = by_program(space(*ground))
    group = (problem.dtype, problem.regime, problem.shape)
    asked = Asked(spot_of(here.machine), lambda what: (what.variant, what.knobs) in programs, group, problem.n)
    found = {"default": default_choice(*ground)}
    for rung in ("nearest", "common"):
        guess = guessed(Way(rung, "share"), known, asked, None)
        choice = None if guess is None else listed(guess.what, guess.like, programs)
        if choice is not None:
            found[rung] = choice
    return found


def _race(pool: Any, problem: Any, choices: dict[str, Any]) -> tuple[int, dict[str, float]] | None:
    """Rounds, and times over that of the own choice."""
    from advisor.search.race import Heat, RaceOptions, race

    distinct = tuple(dict.fromkeys(choices.values()))
    if len(distinct) == 1:
        return 0, dict.fromkeys(choices, 1.0)
    pool.prepare(problem, distinct)
    options = RaceOptions(deadline=time.monotonic() + RACE_S)
    verdict = race(pool, Heat(problem, distinct, choices["default"], "heldout"), options)
    if verdict is None:
        return None
    times = {s.choice: s.summary.p25_ns for s in verdict.standings if s.summary is not None}
    own = times.get(choices["own"])
    if own is None:
        return None
    return verdict.rounds, {way: times[c] / own for way, c in choices.items() if c in times}


def race_part(out: Path, asked: argparse.Namespace) -> int:
    """Race both kernels on the part that this process runs on, a line a row into OUT/rows.jsonl."""
    count = len(os.sched_getaffinity(0))
    others = sorted(p.name for p in out.glob("home-*") if p.name != f"home-{count}")
    for kernel, wanted in (("decode", asked.decode), ("forward", asked.forward)):
        try:
            for row in raced(out, kernel, sizes(wanted), others):
                with open(out / "rows.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(row._asdict()) + "\n")
        except AdvisorError as error:
            print(f"{count} CPUs, {kernel}: {error}", file=sys.stderr)
    return 0


# --- judging and printing ---


def rows(out: Path) -> list[Row]:
    """The rows that are there; a later one of the same race replaces an earlier one."""
    path = out / "rows.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    found = [Row(**json.loads(line)) for line in lines]
    return list({(row.cpus, row.kernel, row.n): row for row in found}.values())


def geomean(values: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean with a bootstrap 95 % interval over the races."""
    logs = np.log(np.array(values, float))
    chance = np.random.default_rng(0)
    means = logs[chance.integers(len(logs), size=(RESAMPLES, len(logs)))].mean(axis=1)
    low, high = np.exp(np.quantile(means, (0.025, 0.975)))
    return math.exp(float(logs.mean())), float(low), float(high)


def judged(found: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Way -> geometric mean, interval, worst and number of races, over the races that every way was in."""
    whole = [row for row in found if all(way in row.ratios for way in WAYS)]
    told = {}
    for way in WAYS if whole else ():
        values = [row.ratios[way] for row in whole]
        mean, low, high = geomean(values)
        told[way] = {"geomean": mean, "low": low, "high": high, "worst": max(values), "races": len(values)}
    return told


def shown(found: Sequence[Row]) -> str:
    """A line a race, then a line a way."""
    lines = ["same silicon: time over the part's own tuned choice, each part left out in turn"]
    lines.append(f"{'CPUs':>4} {'kernel':8} {'n':>7} {'rung':8} " + " ".join(f"{way:>9}" for way in WAYS))
    for row in sorted(found, key=lambda row: (row.cpus, row.kernel, row.n)):
        cells = " ".join(f"{row.ratios[way]:9.3f}" if way in row.ratios else f"{'-':>9}" for way in WAYS)
        lines.append(f"{row.cpus:4} {row.kernel:8} {row.n:7} {row.rung:8} {cells}")
    for way, one in judged(found).items():
        interval = f"({one['low']:.3f}-{one['high']:.3f})"
        lines.append(f"{way:9} {one['geomean']:.3f} {interval} worst {one['worst']:.3f} of {one['races']} races")
    return "\n".join(lines)


# --- the command ---


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line.

    Raises:
        BadInput: fewer than two parts fit into the CPUs in reach.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cpus", default="1,2,4,8,12,16")
    parser.add_argument("--budget", type=float, default=11.0, help="seconds of tuning for each kernel on each part")
    parser.add_argument("--decode", default="1k,16k,128k")
    parser.add_argument("--forward", default="128,512,2048")
    parser.add_argument("--limit", type=float, default=270.0, help="seconds in all")
    parser.add_argument("--race-here", action="store_true", help=argparse.SUPPRESS)
    found = parser.parse_args(words)
    found.parts = parts([int(word) for word in found.cpus.split(",")])
    if len(found.parts) < 2 and not found.race_here:
        raise BadInput(
            "two parts are needed, to leave one out", got=found.cpus, next_step="name fewer CPUs: --cpus 1,2"
        )
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Tune the parts, race them, print. Returns the exit status."""
    given = list(sys.argv[1:] if words is None else words)
    try:
        asked = arguments(given)
    except AdvisorError as error:
        print(f"submachines: {error}", file=sys.stderr)
        return 1
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if asked.race_here:
        return race_part(out, asked)
    until = time.monotonic() + asked.limit
    for cpus in asked.parts:
        tune(out, cpus, asked, until - time.monotonic())
    wanted = len(sizes(asked.decode)) + len(sizes(asked.forward))
    for cpus in asked.parts:
        left_s = until - time.monotonic()
        if left_s > 0 and sum(row.cpus == len(cpus) for row in rows(out)) < wanted:
            started([__file__, *given, "--race-here"], cpus, out / f"home-{len(cpus)}", left_s)
    found = rows(out)
    print(shown(found))
    (out / "submachines.json").write_text(
        json.dumps({"label": "same silicon", "ways": judged(found), "rows": [r._asdict() for r in found]}, indent=1),
        "utf-8",
    )
    return 0 if len(found) >= wanted * len(asked.parts) else 3


if __name__ == "__main__":
    sys.exit(main())
