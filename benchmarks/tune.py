"""The tuner beside an exhaustive pass, and beside TPE, random and Kernel Tuner in equal seconds.

    python benchmarks/tune.py [--kernel decode,forward] [--n 1024,16384] [--limit 540] [--each 150] [--json FILE]
                              [--kernel-tuner PYTHON] [--all-compilers]

Every n: our search with its race; the same first look at the whole space, as a pass of its own; the peers, in as many
seconds as ours took; then one race of all their choices and the exhaustive pass's best with fresh samples. Builds are
compiled before, for everybody but Kernel Tuner, which compiles each configuration. Bars: our regret at most 5 % at
every n and 2 % in the geometric mean, in at most a fifth of the exhaustive time below n = 16384, a tenth from there.

Safe to interrupt: finished rows are in FILE and not made again, our log lies beside it, so that a later part knows what
smaller n taught. Without --json nothing is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tune_kernel_tuner as kernel_tuner
from threadpoolctl import threadpool_limits
from tune_rows import POOLS, Ground, ours, row

from advisor.codec import digest
from advisor.kernels.pool import WorkerPool
from advisor.kernels.registry import spec as spec_of
from advisor.kernels.variant import for_machine, variants
from advisor.search.log import Log
from advisor.search.look import Place
from advisor.search.request import Options, Request, Silent
from advisor.search.run import Run
from advisor.search.space import default_choice, space, space_options
from advisor.search.tune import Neighbour
from advisor.topology.probe import probe

LARGE_N, SMALL_BAR, LARGE_BAR = 16384, 0.2, 0.1
WORST, MEAN = 1.05, 1.02
"""Regret at most, at every n and in the geometric mean."""

SIZES = {"decode": "1024,4096,16384,65536,262144", "forward": "256,1024,4096,16384"}

FRESH_S = 25.0
"""The race that judges takes at most about so long, but always a dozen rounds."""

LEAST_S = 20.0
"""No row is begun with less time left."""

Rows = dict[str, dict[str, Any]]


# --- measuring ---


def request(kernel: str, sizes: Sequence[int], asked: argparse.Namespace) -> Request:
    """Our request for this machine."""
    machine, spec = probe(), spec_of(kernel)
    shape = {key: int(value) for key, value in (pair.split("=") for pair in asked.shape.split(",") if pair)}
    options = space_options(machine)
    options = options if asked.all_compilers else options._replace(compilers=options.compilers[:1])
    known = for_machine(variants(kernel), machine)
    problems = tuple(spec.problem(n, **shape) for n in sorted(set(sizes)))
    wanted = Options(options, seed=asked.seed, resume=True)
    return Request(machine, spec, known, problems, wanted, digest(os.urandom(8).hex()))


@contextlib.contextmanager
def ground(wanted: Request, log: Log, asked: argparse.Namespace) -> Iterator[Ground]:
    """Pools for everybody; builds of the whole space are compiled."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(threadpool_limits(limits=1))
        pools = {
            name: stack.enter_context(WorkerPool(wanted.machine, wanted.spec, wanted.variants, asked.seed))
            for name in POOLS
        }
        run = Run(wanted, pools["ours"], log, Silent(), time.monotonic)
        run.open_session()
        yield Ground(run, pools, asked.kernel_tuner, kernel_tuner.absent(asked.kernel_tuner))


def place_of(wanted: Request, problem: Any) -> Place:
    """The whole space of a problem."""
    where = (wanted.machine, wanted.spec, wanted.variants, problem, wanted.options.space)
    return Place(problem, space(*where), default_choice(*where), ())


def measure(kernel: str, rows: Rows, asked: argparse.Namespace, until: float, keep: Any) -> list[str]:
    """Make the rows of one kernel that are missing, as far as time goes; `keep` is called after each.

    Returns:
        Notes: what was left out and why.
    """
    sizes = sorted({int(word) for word in (asked.n or SIZES[kernel]).split(",")})
    missing = [n for n in sizes if f"{kernel} {n}" not in rows]
    notes: list[str] = []
    if not missing:
        return notes
    wanted = request(kernel, [n for n in sizes if n <= missing[-1]], asked)
    path = f"{asked.json}.{kernel}.jsonl" if asked.json else os.path.join(asked.folder, f"{kernel}.jsonl")
    with Log(path) as log, ground(wanted, log, asked) as where:
        notes += [f"Kernel Tuner left out: {where.absent}"] if where.absent else []
        before: Neighbour | None = None
        for problem in wanted.problems:
            key = f"{kernel} {problem.n}"
            if key not in rows and until - time.monotonic() < LEAST_S:
                notes.append(f"no time for {kernel} from n = {problem.n} on: call again with the same --json")
                break
            place = place_of(wanted, problem)
            if key not in rows:
                _compile(where, place)
            if problem.n == missing[0]:
                where.pools["ours"].crew.close()  # rows taken from the log have started workers; a search pays for them
            print(f"  {key}: {len(place.choices)} choices", file=sys.stderr, flush=True)
            mine, before = ours(where.run, problem, before)
            if key not in rows:
                now = time.monotonic()
                ends = min(now + asked.each, until - LEAST_S / 2), min(now + asked.each + FRESH_S, until)
                rows[key] = row(where, place, mine, ends)
                keep()
    return notes


def _compile(where: Ground, place: Place) -> None:
    """Every build, once for all pools: they share the cache."""
    with WorkerPool(where.run.request.machine, where.run.request.spec, where.run.request.variants) as pool:
        pool.prepare(place.problem, place.choices)


# --- judging ---


def judge(rows: Rows) -> list[tuple[str, bool]]:
    """What the bars say: (sentence, met). Only whole rows count."""
    found = []
    for kernel in sorted({one["kernel"] for one in rows.values()}):
        own = [one for one in rows.values() if one["kernel"] == kernel]
        ratios = [one["regret"]["ours"][0] for one in own if one["regret"].get("ours")]
        if ratios:
            mean = geomean(ratios)
            found.append((f"{kernel}: worst regret {max(ratios):.3f}, bar {WORST}", max(ratios) <= WORST))
            found.append((f"{kernel}: geometric mean {mean:.3f}, bar {MEAN}", mean <= MEAN))
        for one in own:
            bar = LARGE_BAR if one["n"] >= LARGE_N else SMALL_BAR
            if one["share"] is not None:
                most = "" if one["exhaustive"]["whole"] else "at most "
                text = f"{kernel} n={one['n']}: {most}{one['share']:.3f} of the exhaustive time, bar {bar}"
                found.append((text, one["share"] <= bar))
    return found


def geomean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def averages(rows: Rows) -> dict[str, tuple[float, float, int]]:
    """Contender -> geometric mean and worst of its regret, and over how many rows."""
    names = dict.fromkeys(name for one in rows.values() for name in one["regret"])
    found = {}
    for name in names:
        ratios = [one["regret"][name][0] for one in rows.values() if one["regret"].get(name)]
        if ratios:
            found[name] = (geomean(ratios), max(ratios), len(ratios))
    return found


# --- printing ---


def lines(rows: Rows) -> list[str]:
    """The table, one line a row and contender."""
    out = [f"{'kernel':8} {'n':>7} {'space':>6} {'who':30} {'trials':>6} {'seconds':>8} {'share':>7}  regret [95 %]"]
    for one in sorted(rows.values(), key=lambda r: (r["kernel"], r["n"])):
        head = f"{one['kernel']:8} {one['n']:7} {one['space']:6}"
        for name, spent in one["spent"].items():
            share = f"{one['share']:7.3f}" if name == "ours" and one["share"] is not None else " " * 7
            why = f"  ({spent['why']})" if spent["why"] else ""
            tail = f"{_regret(one['regret'].get(name))}{why}"
            out.append(f"{head} {name:30} {spent['trials']:6} {spent['seconds']:8.2f} {share}  {tail}")
        whole = one["exhaustive"]
        cut = "" if whole["whole"] else "  (cut short)"
        tail = f"{_regret(one['regret'].get('exhaustive'))}{cut}"
        out.append(f"{head} {'exhaustive':30} {whole['looked']:6} {whole['seconds']:8.2f} {'':7}  {tail}")
    return out


def _regret(found: Sequence[float] | None) -> str:
    return "not raced" if found is None else f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def show(rows: Rows, notes: Sequence[str]) -> None:
    """Print the table, averages, bars and notes."""
    print("\n".join(lines(rows)))
    for name, (mean, worst, count) in averages(rows).items():
        print(f"{name}: regret {mean:.3f} in the geometric mean, {worst:.3f} at worst, {count} rows")
    for text, met in judge(rows):
        print(f"{'met' if met else 'MISSED'}: {text}")
    for note in dict.fromkeys(notes):
        print(f"note: {note}")


# --- the command ---


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="decode,forward")
    parser.add_argument("--n", default="", help="sizes, comma separated; the default depends on the kernel")
    parser.add_argument("--shape", default="", help="batch=1,heads=32,... ; the kernel's defaults fill the rest")
    parser.add_argument("--all-compilers", action="store_true", help="every compiler found, not the first alone")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--each", type=float, default=150.0, help="seconds of an exhaustive pass at most")
    parser.add_argument("--kernel-tuner", default=sys.executable, metavar="PYTHON", help="interpreter that has it")
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
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            about = {"model_name": machine.model_name, "cores": machine.cores}
            json.dump({"machine": about, "rows": rows}, file, indent=1)
        os.replace(f"{path}.new", path)


def main() -> None:
    """Measure what is missing, judge, show."""
    asked = arguments().parse_args()
    until, rows, notes = time.monotonic() + asked.limit, read(asked.json), list[str]()
    with tempfile.TemporaryDirectory() as asked.folder, contextlib.suppress(KeyboardInterrupt):
        for kernel in asked.kernel.split(","):
            notes += measure(kernel, rows, asked, until, lambda: write(asked.json, rows))
    show(rows, notes)


if __name__ == "__main__":
    main()
