"""What a description of this machine costs, beside lscpu and lstopo.

    python benchmarks/probe.py [--json] [--rounds 20]

Whole processes, from start to the last byte: `advisor probe --json`, `lscpu -J`, `lstopo --of xml`. In process, after
imports: the topology alone (kernel files), and lscpu as the second witness. The candidates take turns in shuffled
rounds, so that a busy neighbour meets all of them; figures are medians, intervals bootstrap 95 % intervals of the
median ratio of one round. `advisor probe` also asks compilers, GPUs and what the process may do, which the peers do
not; `topology` in a process of its own is what compares with them.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from advisor.topology import lscpu, probe

BAR_MS = 100.0
"""The topology in process, after imports: a floor to pass."""

BASE = "lscpu -J"
TOPOLOGY = "import sys; from advisor.topology.probe import *; sys.stdout.write(machine_json(topology()))"
DRAWS = 2000


class Line(NamedTuple):
    """One candidate. Times in milliseconds; `ratio` to BASE with its 95 % interval, None where that is missing."""

    name: str
    median_ms: float
    low_ms: float
    high_ms: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


# --- measure ---


def command(argv: list[str]) -> Callable[[], object]:
    """A whole process, its output read and dropped."""
    return lambda: subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def candidates() -> dict[str, Callable[[], object]]:
    """Name -> what is timed; peers that are not installed are left out."""
    found: dict[str, Callable[[], object]] = {
        "advisor probe --json": command([sys.executable, "-m", "advisor.cli", "probe", "--json"]),
        "topology, a process": command([sys.executable, "-c", TOPOLOGY]),
        "topology, in process": probe.topology,
        "lscpu heard, in process": lscpu.listen,
    }
    if shutil.which("lscpu"):
        found[BASE] = command(["lscpu", "-J"])
    lstopo = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if lstopo:
        found["lstopo --of xml"] = command([lstopo, "--of", "xml", "-"])
    return found


def measure(rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every candidate in every round, after one round that does not count."""
    found = candidates()
    times: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds + 1):
        for name in random.sample(list(found), len(found)):
            start = time.perf_counter()
            found[name]()
            if turn:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


# --- judge ---


def interval(samples: list[float]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(DRAWS))
    return medians[DRAWS // 40], medians[-DRAWS // 40]


def judge(times: dict[str, list[float]]) -> list[Line]:
    """Medians and the ratios of each round to BASE."""
    lines = []
    for name, samples in times.items():
        ratios = [a / b for a, b in zip(samples, times.get(BASE, ()), strict=False)]
        told = (statistics.median(ratios), *interval(ratios)) if ratios else (None, None, None)
        lines.append(Line(name, statistics.median(samples), *interval(samples), *told))
    return lines


# --- print ---


def table(lines: list[Line]) -> str:
    """A Markdown table."""
    rows = ["| what | median, ms | 95 % | x lscpu -J | 95 % |", "|---|---|---|---|---|"]
    for name, median, low, high, *ratio in lines:
        told = "- | -" if None in ratio else f"{ratio[0]:.2f} | {ratio[1]:.2f} to {ratio[2]:.2f}"
        rows.append(f"| {name} | {median:.1f} | {low:.1f} to {high:.1f} | {told} |")
    return "\n".join(rows)


def document(lines: list[Line], rounds: int) -> Any:
    """The same as data, with the verdict on the bar."""
    own = next(line for line in lines if line.name == "topology, in process")
    return {
        "rounds": rounds,
        "lines": [line._asdict() for line in lines],
        "bar": {"topology_in_process_ms": BAR_MS, "median_ms": own.median_ms, "passed": own.median_ms < BAR_MS},
    }


def main() -> int:
    """Measure, judge, print. Exit status 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    lines = judge(measure(asked.rounds))
    found = document(lines, asked.rounds)
    print(
        json.dumps(found, indent=1)
        if asked.json
        else f"{table(lines)}\n\n{probe.topology().model_name}: {found['bar']}"
    )
    return 0 if found["bar"]["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
