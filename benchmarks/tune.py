"""The search beside an exhaustive one: time, and regret from fresh interleaved samples.

    python benchmarks/tune.py [--kernel decode] [--n 256,1024,4096,16384,65536] [--limit 540] [--json FILE]

Every n: a search with its race, then the same first look at the rest of the space, then a race of the searched choice
against the best five of all with fresh samples. Bars: regret at most 5 % at every n and 2 % geometric mean, in at most
a fifth of the exhaustive time below n = 16384 and a tenth from there. Safe to interrupt: what is done is shown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections import defaultdict
from typing import Any

from advisor.codec import digest, to_json
from advisor.kernels.pool import WorkerPool
from advisor.kernels.registry import spec as spec_of
from advisor.kernels.variant import for_machine, variants
from advisor.search.log import Log
from advisor.search.request import Options, Outcome, Report, Request, Silent
from advisor.search.space import space_options
from advisor.search.tune import tune
from advisor.topology.probe import probe

LARGE_N = 16384


class Lines(Silent):
    """Stages on standard error."""

    def stage(self, name: str, total: int | None) -> None:
        """One line a stage."""
        print(f"  {name} ({total if total is not None else '?'})", file=sys.stderr, flush=True)


def request(asked: argparse.Namespace) -> Request:
    """The exhaustive request for this machine."""
    machine, kernel = probe(), spec_of(asked.kernel)
    shape = dict(pair.split("=") for pair in asked.shape.split(",") if pair)
    sizes = sorted({int(word) for word in asked.n.split(",")})
    problems = tuple(kernel.problem(n, **{key: int(value) for key, value in shape.items()}) for n in sizes)
    space = space_options(machine)
    space = space if asked.all_compilers else space._replace(compilers=space.compilers[:1])
    options = Options(space, budget_s=asked.limit, exhaustive=True, seed=asked.seed)
    known = for_machine(variants(asked.kernel), machine)
    return Request(machine, kernel, known, problems, options, digest(os.urandom(8).hex()))


def measured_seconds(outcome: Outcome) -> dict[int, dict[str, float]]:
    """n -> seconds of first looks: in the kernel, compiling, all."""
    found: dict[int, dict[str, float]] = defaultdict(lambda: {"in_kernel": 0.0, "compile": 0.0, "all": 0.0})
    for trial in outcome.trials:
        row = found[trial.problem.n]
        row["in_kernel"] += trial.kernel_s
        row["compile"] += trial.compile_s
        row["all"] += trial.seconds
    return found


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """One row an n, plain data."""
    regrets = {regret.problem: regret for regret in outcome.regrets}
    looks = measured_seconds(outcome)
    return [_row(report, regrets.get(report.problem), looks[report.problem.n]) for report in outcome.reports]


def _row(report: Report, regret: Any, looks: dict[str, float]) -> dict[str, Any]:
    whole = report.exhaustive_looked == report.space_size and report.exhaustive_s is not None
    return {
        "n": report.problem.n,
        "space_size": report.space_size,
        "trials": report.looked,
        "stopped": report.stopped,
        "search_s": report.search_s,
        "exhaustive_s": report.exhaustive_s if whole else None,
        "exhaustive_looked": report.exhaustive_looked,
        "time_ratio": report.search_s / report.exhaustive_s if whole and report.exhaustive_s else None,
        "looks_in_kernel_s": looks["in_kernel"],
        "looks_compile_s": looks["compile"],
        "regret": regret.ratio if regret else None,
        "regret_ci95": list(regret.ratio_ci95) if regret else None,
        "searched": to_json(regret.searched) if regret else None,
        "best": to_json(regret.best) if regret else None,
    }


def show(table: list[dict[str, Any]], outcome: Outcome) -> None:
    """Print the table and the verdict on the bars."""
    print(f"{'n':>8} {'space':>6} {'trials':>6} {'search s':>9} {'exhaust. s':>10} {'ratio':>6} {'bar':>5}  regret")
    for row in table:
        bar = 0.1 if row["n"] >= LARGE_N else 0.2
        time = (
            f"{row['exhaustive_s']:10.1f} {row['time_ratio']:6.3f}"
            if row["time_ratio"]
            else f"{'not done':>10} {'-':>6}"
        )
        ends = row["regret_ci95"]
        loss = f"{row['regret']:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]" if row["regret"] else "not raced"
        print(
            f"{row['n']:8} {row['space_size']:6} {row['trials']:6} {row['search_s']:9.1f} {time} {bar:5.1f}  {loss}"
            f"  ({row['stopped']})"
        )
    _summary(table, outcome)


def _summary(table: list[dict[str, Any]], outcome: Outcome) -> None:
    regrets = [row["regret"] for row in table if row["regret"]]
    done = [row for row in table if row["time_ratio"]]
    if regrets:
        geomean = math.exp(sum(map(math.log, regrets)) / len(regrets))
        print(f"regret: worst {max(regrets):.3f}, geometric mean {geomean:.3f} over {len(regrets)} sizes")
    if done:
        total = sum(row["search_s"] for row in done) / sum(row["exhaustive_s"] for row in done)
        print(f"time: search over exhaustive {total:.3f} in all (first sizes pay for compiling)")
    seconds = {key: round(value, 1) for key, value in outcome.seconds}
    print(f"seconds of the whole benchmark: {seconds}; trials {dict(outcome.counts)}")
    for note in outcome.notes:
        print(f"note: {note}")


def main() -> None:
    """Search, exhaust, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="decode")
    parser.add_argument("--n", default="256,1024,4096,16384,65536")
    parser.add_argument("--shape", default="", help="batch=1,heads=32,... ; the kernel's defaults fill the rest")
    parser.add_argument("--all-compilers", action="store_true", help="every compiler found, not the first alone")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the rows to this file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Log(os.path.join(folder, "m.jsonl")) as log:
        wanted = request(asked)
        with WorkerPool(wanted.machine, wanted.spec, wanted.variants, asked.seed) as pool:
            outcome = tune(wanted, pool, log, Lines())
    table = rows(outcome)
    show(table, outcome)
    if asked.json:
        machine = {"model_name": wanted.machine.model_name, "cores": wanted.machine.cores}
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "rows": table, "seconds": dict(outcome.seconds)}, file, indent=1)


if __name__ == "__main__":
    main()
