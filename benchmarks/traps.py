"""The stolen core, measured: one decode step by threads and wait policy, quiet and beside one busy neighbour.

    python benchmarks/traps.py [--n 1024,65536] [--json FILE]

Every line is one variant (split, its default knobs, gcc), warm cache, compact placement or none; the neighbour is
pinned to the last CPU in reach. Quiet: 25th percentile of samples, noisy ones repeated. Stolen: mean of all calls over
a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import NamedTuple

from advisor.arguments import sizes
from advisor.kernels import registry
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import Variant, variants
from advisor.records import Choice, Machine, Problem, Process, Team
from advisor.search.protocol import window
from advisor.search.samples import summary
from advisor.search.space import cpu_budget, default_choice, space_options
from advisor.search.stolen import neighbour_cpu
from advisor.topology.placement import UNPINNED
from advisor.topology.probe import probe

LIMIT_S = 60.0


class Line(NamedTuple):
    """One measured cell; times in microseconds a call, None where it failed."""

    n: int
    threads: int
    wait_policy: str
    pinned: bool
    quiet_p25_us: float | None
    stolen_p25_us: float | None
    stolen_mean_us: float | None
    stolen_p99_us: float | None


def teams(machine: Machine) -> list[int]:
    """One thread, half of the CPUs, all but one, all."""
    most = cpu_budget(machine)
    return sorted({1, max(1, most // 2), max(1, most - 1), most})


def cells(machine: Machine, problem: Problem, pool: WorkerPool, found: tuple[Variant, ...]) -> list[Line]:
    """Measure every team and wait policy on one problem."""
    options = space_options(machine)
    options = options._replace(compilers=options.compilers[:1])
    base = default_choice(machine, pool.spec, found, problem, options)
    runtime = options.compilers[0].runtime
    lines = []
    for threads in teams(machine):
        for wait in ("default", "active", "passive") if threads > 1 else ("default",):
            for placement in ("", UNPINNED) if threads == cpu_budget(machine) else ("",):
                process = Process(runtime, wait, None, "default")
                lines.append(
                    cell(machine, problem, base._replace(team=Team(threads, placement), process=process), pool)
                )
    return lines


def cell(machine: Machine, problem: Problem, choice: Choice, pool: WorkerPool) -> Line:
    """Measure one choice quiet, then beside the neighbour."""
    quiet = pool.measure(problem, choice, Ask(15, LIMIT_S))
    with pool.disturbed(neighbour_cpu(machine)):
        stolen = pool.measure(problem, choice, window(False, LIMIT_S))
    figures = [None if m.status != "ok" else summary(m.samples_ns) for m in (quiet, stolen)]
    calm, beside = figures
    team, process = choice.team, choice.process
    return Line(
        problem.n,
        team.threads if team else 0,
        process.wait_policy if process else "-",
        team is not None and team.placement != UNPINNED,
        calm.p25_ns / 1e3 if calm else None,
        beside.p25_ns / 1e3 if beside else None,
        beside.mean_ns / 1e3 if beside else None,
        beside.p99_ns / 1e3 if beside else None,
    )


def table(lines: list[Line]) -> str:
    """A Markdown table of the cells."""
    rows = ["| n | threads | wait policy | pinned | quiet p25, us | stolen p25, us | stolen mean, us | mean / quiet |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for line in lines:
        ratio = line.stolen_mean_us / line.quiet_p25_us if line.stolen_mean_us and line.quiet_p25_us else None
        words = [line.quiet_p25_us, line.stolen_p25_us, line.stolen_mean_us, ratio]
        shown = ["-" if word is None else f"{word:.3g}" for word in words]
        head = f"| {line.n} | {line.threads} | {line.wait_policy} | {'yes' if line.pinned else 'no'} |"
        rows.append(f"{head} {' | '.join(shown)} |")
    return "\n".join(rows)


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", default="1024,16384,262144")
    parser.add_argument("--json")
    asked = parser.parse_args()
    machine, spec = probe(), registry.spec("decode")
    found = tuple(v for v in variants("decode") if v.name == "split")
    lines: list[Line] = []
    with WorkerPool(machine, spec, found) as pool:
        for n in sizes(asked.n):
            lines += cells(machine, spec.problem(n), pool, found)
            print(table(lines[-len(teams(machine)) * 2 :]), file=sys.stderr, flush=True)
    print(f"{machine.model_name}, {cpu_budget(machine)} CPUs\n{table(lines)}")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump([line._asdict() for line in lines], file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
