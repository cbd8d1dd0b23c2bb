"""Held-out regret of this machine's tables: at random n that were never tuned, against an exhaustive look there.

    python benchmarks/policy.py [--kernels decode,forward] [--seconds 240] [--each 4] [--no-tune] [--home DIR]
                                [--json FILE]

Each kernel is tuned first where DIR has no table of this machine; with --no-tune what answers here is judged as it is:
DIR's table, else the one that was shipped for this machine. The same where a tuning left the shipped table in place,
since what it found was no better. Then random n inside the tuned region, log-uniform,
at none of which anything was learned: a first look at every choice of the space, as far as time goes (those of the
table first, then the rest in random order), a second at the best of them, and one race with fresh samples of the best,
of what the table says and of the DEFAULT. Regret is the time of the table's choice over the best, which was picked on
one half of the rounds and timed on the other; never counted below 1. Bars: geometric mean at most 2 %, worst at most
10 %. An n at which less than a quarter of the space was looked at says nothing and has no row. A row keeps the samples
of the race's best, of the table's choice and of the DEFAULT, and the looks by variant, so that a miss can be explained.

Safe to interrupt: finished rows are in FILE, and not made again; the tables lie beside it, in FILE.home, unless --home
says where. Exit status 0 all bars met, 1 a bar missed, 3 rows missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits
from tune_rows import fresh_race, regrets

from advisor.arguments import sizes
from advisor.codec import from_json, to_json
from advisor.concluding import held_out_sizes
from advisor.errors import AdvisorError, Missing
from advisor.gather import files
from advisor.kernels.executor import Executor
from advisor.kernels.executors import pool_for
from advisor.kernels.pool import WorkerPool
from advisor.kernels.registry import spec as spec_of
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, for_machine, variants
from advisor.policy.launch import duration
from advisor.policy.learn import choose
from advisor.policy.store import ids_of, load_table
from advisor.probing import folder_of
from advisor.records import Choice, Machine, Measurement, Problem, Process, Table, Team
from advisor.search import protocol
from advisor.search.run import ranked, value_of
from advisor.search.samples import smooth_p25
from advisor.search.space import (
    SpaceOptions,
    binary,
    default_choice,
    first_of_each_language,
    space,
    space_options,
)
from advisor.show import choice_words, process_short
from advisor.site import describe_here
from advisor.topology.probe import probe
from advisor.tuning_result import best_section, of_shape

GEOMEAN, WORST = 1.02, 1.10
"""Regret at most, in the geometric mean and at worst, over all n of both kernels."""

SIZES = {"decode": "1k,4k,16k,64k,256k", "forward": "64,128,256,512,1024,2048"}
"""What is tuned where no table is there."""

TUNE_SHARE = 0.4
"""Of the time, what tuning takes; the rest is for the n that were held out."""

END_SHARE = 0.94
"""Of the time, when the last race is to end: it goes on to a dozen rounds."""

LOOK_SHARE = 0.75
"""Of a row's time, what looks take; then the race."""

FIRST_SAMPLES, SECOND, RACED = 2, 24, 6
"""Samples of a first look, how many choices have a second one, how many of those race."""

CHUNK = 32
"""Choices that are compiled together."""

LEAST_LOOKED = 0.25
"""Share of a space that must have been looked at for a row to count."""

LIMIT_S, LEAST_S = 20.0, 6.0
"""Limit of one look, and what a row needs at least to be begun."""

Rows = dict[str, dict[str, Any]]
Clock = Callable[[], float]


class Ground(NamedTuple):
    """Where rows are made: machine, definition, variants and tools as `advisor tune` takes them, and the table."""

    machine: Machine
    spec: KernelSpec
    variants: tuple[Variant, ...]
    options: SpaceOptions
    table: Table


class Looked(NamedTuple):
    """An exhaustive look: the best choices, best first, all that were looked at, and whether those are the space."""

    best: tuple[Choice, ...]
    looked: tuple[Choice, ...]
    whole: bool


# --- tuning ---


def tuned(kernel: str, asked: argparse.Namespace, budget_s: float) -> Ground:
    """What answers for a kernel on this machine, tuned now where DIR has no table of it and tuning is asked for.

    Raises:
        Missing: nothing answers here.
    """
    machine = probe()
    if not asked.no_tune and not os.path.exists(os.path.join(folder_of(machine), f"{kernel}.table.json")):
        wanted = asked.sizes or SIZES[kernel]
        words = ["--kernel", kernel, "--n", wanted, "--budget", f"{budget_s:.0f}s", "--seed", str(asked.seed)]
        print(f"  tune {kernel}: n = {wanted}, {budget_s:.0f} s", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "advisor.cli", "tune", *words], check=False, stdout=sys.stderr)
    table = answering(kernel, machine)
    options = space_options(machine)
    options = options._replace(compilers=first_of_each_language(options.compilers))
    return Ground(machine, spec_of(kernel), for_machine(variants(kernel), machine), options, table)


def answering(kernel: str, machine: Machine) -> Table:
    """The table by which a lookup answers here: the user's own, else one that was shipped for this machine.

    One that no lookup trusts, or that is of other limits, does not answer.

    Raises:
        Missing: there is none.
    """
    ids, name = (kernel, machine.hardware_id, machine.limits_id), f"{kernel}.table.json"
    for path in files(describe_here("/", []), None, None):
        with contextlib.suppress(AdvisorError):
            if os.path.basename(path) == name and ids_of(table := load_table(path)) == ids:
                return table
    raise Missing("no table answers here", got=kernel, allowed="one of this machine and its limits")


def held_out(ground: Ground, asked: argparse.Namespace) -> list[Problem]:
    """Random problems of the table's first shape at which nothing was learned, in random order."""
    section = ground.table.sections[0]
    own = [s for s in ground.table.sections if (s.dtype, s.shape, s.regime) == section[:3]]
    tuned_n = sorted({n for one in own for n in one.tuned_n})
    known = {point.n for one in own for row in one.rows for point in row.points}
    drawn = list(held_out_sizes(tuned_n, asked.each, asked.seed + 1, known))
    random.Random(asked.seed).shuffle(drawn)
    first = Problem(ground.spec.name, section.dtype, section.shape, tuned_n[0], section.regime)
    return [first._replace(n=n) for n in drawn]


def says(table: Table, problem: Problem) -> Choice:
    """What the table takes there, of the process part that is best nearby."""
    own = of_shape(table, problem)
    return choose(best_section(own, problem.n), problem.n)


# --- the exhaustive look ---


def exhaustive(
    executor: Executor, problem: Problem, order: Sequence[Choice], until: float, clock: Clock = time.monotonic
) -> Looked:
    """First looks at all choices in an order, as far as time goes; then whole looks at the best of them.

    Args:
        executor: measures.
        problem: where.
        order: all choices, those first that are likely good: a far worse one is given up after one sample.
        until: on the clock; a sixth of the time from now is kept for the second looks.
        clock: seconds.
    """
    begun, looks = clock(), dict[Choice, Measurement]()
    first_until = until - (until - begun) / 6
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        if clock() >= first_until:
            break
        if isinstance(executor, WorkerPool):
            executor.prepare(problem, chunk)
        for choice in sorted(chunk, key=_together) if start else chunk:
            if clock() < first_until:
                looks[choice] = _look(executor, problem, choice, looks, FIRST_SAMPLES)
    for one in ranked(list(looks.values()))[:SECOND]:
        if clock() < until:
            again = _look(executor, problem, one.choice, looks, protocol.LOOK_SAMPLES)
            looks[one.choice] = again if again.status != "ok" else _lower(one, again)
    best = tuple(one.choice for one in ranked(list(looks.values()))[:RACED])
    return Looked(best, tuple(looks), len(looks) == len(order))


def _together(choice: Choice) -> tuple[str, int]:
    """Choices of one process part, then of one team: changing either takes longer than a look."""
    return repr(choice.process), choice.team.threads if choice.team else 0


def _lower(one: Measurement, other: Measurement) -> Measurement:
    return other._replace(samples_ns=(*one.samples_ns, *other.samples_ns))


def _look(
    executor: Executor, problem: Problem, choice: Choice, looks: dict[Choice, Measurement], samples: int
) -> Measurement:
    best_ns = min((value for look in looks.values() if (value := value_of(look)) is not None), default=None)
    ask = protocol.look(True, LIMIT_S, best_ns)._replace(samples=samples)
    return executor.measure(problem, choice, ask)


def ordered(choices: Sequence[Choice], known: Sequence[Choice], seed: int) -> list[Choice]:
    """All choices: those of the table first, then those that differ from them in team or process part alone, then the
    rest, both in random order."""
    chance, listed = random.Random(seed), set(choices)
    programs = {binary(choice.build) for choice in known}
    rest = [choice for choice in choices if choice not in known]
    chance.shuffle(rest)
    near = [choice for choice in rest if binary(choice.build) in programs]
    far = [choice for choice in rest if binary(choice.build) not in programs]
    return [*dict.fromkeys(choice for choice in known if choice in listed), *near, *far]


# --- a row ---


def row(executor: Executor, ground: Ground, problem: Problem, until: float, seed: int) -> dict[str, Any]:
    """One n as plain data: the exhaustive look, then the race of its best, of the table's choice and of the DEFAULT."""
    where = (ground.machine, ground.spec, ground.variants, problem, ground.options)
    choices, default, told = space(*where), default_choice(*where), says(ground.table, problem)
    own = of_shape(ground.table, problem)
    known = list(dict.fromkeys([told, default, *(r.choice for s in own.sections for r in s.rows)]))
    begun = time.monotonic()
    look = exhaustive(
        executor, problem, ordered(choices, known, seed), begun + LOOK_SHARE * (until - begun), time.monotonic
    )
    racing = tuple(dict.fromkeys((told, default, *look.best)))
    if isinstance(executor, WorkerPool):
        executor.prepare(problem, racing)
    samples = fresh_race(executor, problem, racing, until, seed)
    return {
        "kernel": problem.kernel,
        "n": problem.n,
        "space": len(choices),
        "looked": len(look.looked),
        "whole": look.whole,
        "looks": _by_variant(look.looked, choices),
        "rounds": max(map(len, samples.values()), default=0),
        "contenders": contenders(samples, {"table": told, "default": default}),
        "regret": regrets(samples, {"table": told, "default": default}),
        "seconds": round(time.monotonic() - begun, 1),
    }


def _by_variant(looked: Sequence[Choice], choices: Sequence[Choice]) -> dict[str, list[int]]:
    """Variant -> how many of its choices were looked at, and how many there are."""
    seen, there = (Counter(choice.build.variant for choice in some) for some in (looked, choices))
    return {variant: [seen[variant], there[variant]] for variant in sorted(there)}


def contenders(samples: dict[Choice, list[float]], picks: dict[str, Choice]) -> dict[str, dict[str, Any]]:
    """What explains a row: the race's best choice and the picks, each with its samples of the race.

    Args:
        samples: choice -> its samples in ns; one that failed has none.
        picks: name -> choice.
    """
    timed = [choice for choice, own in samples.items() if own]
    best = {"best": min(timed, key=lambda choice: smooth_p25(samples[choice]))} if timed else {}
    return {
        name: {"choice": to_json(choice), "samples_ns": [round(ns, 1) for ns in samples.get(choice, ())]}
        for name, choice in {**best, **picks}.items()
    }


def measure(rows: Rows, asked: argparse.Namespace, until: float, keep: Callable[[], None]) -> list[str]:
    """Make the rows that are missing, as far as time goes. Returns what was left out and why."""
    kernels, notes = asked.kernels.split(","), list[str]()
    budget_s = TUNE_SHARE * asked.seconds / len(kernels)
    grounds = []
    for kernel in kernels:
        try:
            grounds.append(tuned(kernel, asked, budget_s))
        except AdvisorError as error:
            notes.append(f"{kernel} has no table: {error}")
    todo = [(ground, problem) for ground in grounds for problem in held_out(ground, asked)]
    asked.wanted = [f"{problem.kernel} {problem.n}" for _, problem in todo]
    todo = [pair for pair in todo if f"{pair[1].kernel} {pair[1].n}" not in rows]
    with threadpool_limits(limits=1):
        for ground, problem, left in _in_turn(todo):
            now = time.monotonic()
            if until - now < LEAST_S:
                notes.append(f"no time for {problem.kernel} n = {problem.n}: call again with the same --json")
                continue
            print(f"  {problem.kernel} n = {problem.n}", file=sys.stderr, flush=True)
            ends = now + (until - now) / left
            with pool_for(ground.machine, ground.spec, ground.variants, asked.seed) as pool:
                made = row(pool, ground, problem, ends, asked.seed)  # type: ignore[arg-type]
            if made["looked"] < LEAST_LOOKED * made["space"]:
                notes.append(
                    f"{problem.kernel} n = {problem.n}: time for {made['looked']} of {made['space']} choices only"
                )
                continue
            rows[f"{problem.kernel} {problem.n}"] = made
            keep()
    return notes


def _in_turn(todo: Sequence[tuple[Ground, Problem]]) -> Iterator[tuple[Ground, Problem, int]]:
    """The rows of all kernels in turn, so that time that runs out costs each the same; and how many are left."""
    place = dict.fromkeys((problem.kernel for _, problem in todo), 0)
    order = []
    for ground, problem in todo:
        order.append((place[problem.kernel], len(order), ground, problem))
        place[problem.kernel] += 1
    for done, (_, _, ground, problem) in enumerate(sorted(order, key=lambda one: one[:2])):
        yield ground, problem, len(order) - done


# --- judging ---


class Judged(NamedTuple):
    """Geometric mean of the regret with a 95 % interval, the worst row, and whether the bars are met."""

    kernel: str
    rows: int
    geomean: tuple[float, float, float]
    worst: float
    met: bool


def judge(rows: Rows) -> list[Judged]:
    """What the rows say, a kernel each and all together. A choice that failed at an n is over every bar.

    The interval is that of independent rows: half widths add up by squares, in log.
    """
    known = list(rows.values())
    groups = {
        kernel: [one for one in known if one["kernel"] == kernel]
        for kernel in dict.fromkeys(one["kernel"] for one in known)
    }
    if len(groups) > 1:
        groups["both" if len(groups) == 2 else "all"] = known
    return [_judged(kernel, own) for kernel, own in groups.items()]


def _judged(kernel: str, own: Sequence[dict[str, Any]]) -> Judged:
    found = [one["regret"]["table"] for one in own]
    if any(one is None for one in found):
        return Judged(kernel, len(own), (math.inf,) * 3, math.inf, False)
    logs = [max(0.0, math.log(centre)) for centre, _, _ in found]
    mean = sum(logs) / len(logs)
    down = math.hypot(*(math.log(centre / low) for centre, low, _ in found)) / len(found)
    up = math.hypot(*(math.log(high / centre) for centre, _, high in found)) / len(found)
    ends = math.exp(mean), math.exp(max(0.0, mean - down)), math.exp(mean + up)
    worst = math.exp(max(logs))
    return Judged(kernel, len(own), ends, worst, ends[0] <= GEOMEAN and worst <= WORST)


# --- printing ---


def lines(rows: Rows) -> list[str]:
    """A line a row."""
    out = [f"{'kernel':8} {'n':>8} {'space':>6} {'looked':>7} {'rounds':>6} {'s':>5}  regret [95 %]         DEFAULT"]
    for one in sorted(rows.values(), key=lambda r: (r["kernel"], r["n"])):
        looked = f"{one['looked']}{'' if one['whole'] else '*'}"
        told = _words(one["regret"]["table"])
        head = f"{one['kernel']:8} {one['n']:8} {one['space']:6} {looked:>7} {one['rounds']:6} {one['seconds']:5.0f}"
        out.append(f"{head}  {told:20}  {_words(one['regret']['default'])}")
        out += explained(one) if _is_missed(one["regret"]["table"]) else []
    return [*out, *(["* not the whole space: time ran out"] if any(not one["whole"] for one in rows.values()) else [])]


def _is_missed(found: Sequence[float] | None) -> bool:
    """Whether a row is over the lower bar, or its choice failed."""
    return found is None or found[0] > GEOMEAN


def explained(one: dict[str, Any]) -> list[str]:
    """What was better at a missed n: the best choice, the table's and the DEFAULT with their medians, and the looks."""
    out = [f"    {name}: {_contender(kept)}" for name, kept in one["contenders"].items()]
    looks = ", ".join(f"{variant} {seen} of {there}" for variant, (seen, there) in one["looks"].items())
    return [*out, f"    looked at: {looks}"]


def _contender(kept: dict[str, Any]) -> str:
    choice: Choice = from_json(Choice, kept["choice"])
    words = f"{choice_words(choice)}{_team_words(choice.team, choice.process)}"
    if not kept["samples_ns"]:
        return f"failed: {words}"
    return f"{duration(statistics.median(kept['samples_ns']))}, {words}"


def _team_words(team: Team | None, process: Process | None) -> str:
    return "" if team is None else f", {team.threads} on {team.placement or 'the first CPUs'}, {process_short(process)}"


def _words(found: Sequence[float] | None) -> str:
    return "failed" if found is None else f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def show(rows: Rows, notes: Sequence[str]) -> None:
    """Print rows, bars and notes."""
    print("\n".join(lines(rows)))
    for one in judge(rows):
        mean = f"geometric mean {one.geomean[0]:.3f} [{one.geomean[1]:.3f}, {one.geomean[2]:.3f}], bar {GEOMEAN}"
        told = f"{one.kernel}, {one.rows} n: {mean}; worst {one.worst:.3f}, bar {WORST}"
        print(f"{'met' if one.met else 'MISSED'}: {told}")
    for note in notes:
        print(f"note: {note}")


# --- the command ---


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", default="decode,forward")
    parser.add_argument("--seconds", type=float, default=240.0, help="for everything, tuning included")
    parser.add_argument("--each", type=int, default=4, help="n held out, a kernel")
    parser.add_argument(
        "--sizes", default="", help="n to tune where there is no table, instead of those of each kernel"
    )
    parser.add_argument("--home", help="folder of tables (ADVISOR_HOME); what is there is not tuned again")
    parser.add_argument("--no-tune", action="store_true", help="judge what answers here, tune nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="rows are kept in this file, and taken from it")
    return parser


def read(path: str | None) -> Rows:
    """The rows of an earlier part; none where there is no such file."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        found: Rows = json.load(file)["rows"]
    return found


def write(path: str | None, rows: Rows) -> None:
    """Keep the rows, whole or not at all."""
    if path:
        machine = probe()
        about = {"model_name": machine.model_name, "allowed_cpus": len(machine.allowed_cpus)}
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"machine": about, "rows": rows}, file, indent=1)
        os.replace(f"{path}.new", path)


def main() -> int:
    """Measure what is missing, judge, show."""
    asked = arguments().parse_args()
    until = time.monotonic() + END_SHARE * asked.seconds
    rows, notes = read(asked.json), list[str]()
    if asked.sizes:
        sizes(asked.sizes)  # refused before anything is measured
    asked.wanted = []
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        home = asked.home or (f"{os.path.abspath(asked.json)}.home" if asked.json else folder)
        os.environ["ADVISOR_HOME"] = os.path.abspath(home)
        notes += measure(rows, asked, until, lambda: write(asked.json, rows))
    show(rows, notes)
    absent = set(asked.kernels.split(",")) - {name.split()[0] for name in asked.wanted}
    if absent or any(name not in rows for name in asked.wanted):
        return 3
    return 0 if all(one.met for one in judge(rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
