"""What a lookup costs beside a bare bisection, and what its import costs over a bare interpreter.

    python benchmarks/lookup.py [--json] [--rounds 20] [--processes 20]

The candidates take turns in shuffled rounds, so that a busy neighbour meets all of them; figures are medians, intervals
are bootstrap 95 % intervals of the median ratio of one round. The table is made up (three shapes, four process
parts, eight tuned n, four rows); its times are never shown as measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from advisor.identity import here
from advisor.lookup import Policy
from advisor.policy import store
from advisor.records import (
    Build,
    Choice,
    Point,
    Process,
    Row,
    Section,
    Summary,
    Table,
    Team,
    pairs,
)

TUNED = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
BARS = {
    "bound / bisect": 3.0,
    "choose_ns": 1000.0,
    "choose, counting ns": 1000.0,
    "miss, counting ns": 1000.0,
    "load_ms": 20.0,
    "import_ms": 10.0,
}
"""Bars set when the project began; each is a floor to pass."""
CALLS = 2000
AXES = {"heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "float32"}


class Ratio(NamedTuple):
    """Median and 95 % interval of a ratio (or difference) over rounds."""

    median: float
    low: float
    high: float


# --- measure ---


def section(shape: dict[str, int], process: Process) -> Section:
    """Four rows of two tuned n each: as many as crossovers in the published figures."""
    rows = []
    for i, n in list(enumerate(TUNED))[::2]:
        choice = Choice(Build("made_up", "0" * 12, pairs({"block": 64}), "gcc", "native"), Team(1, ""), process)
        choice = choice._replace(build=choice.build._replace(knobs=pairs({"block": i})))
        near = TUNED[max(0, i - 1) : i + 3]
        points = tuple(
            Point(m, Summary(1.0 * m, 1.1 * m, 1.2 * m, 1.5 * m, (0.9 * m, 1.1 * m), 20), True) for m in near
        )
        high = TUNED[i + 2] - 1 if i + 2 < len(TUNED) else TUNED[-1]
        rows.append(Row(n, high, choice, points, ()))
    known = tuple(Point(m, Summary(2.0 * m, 2.1 * m, 2.2 * m, 2.5 * m, (1.9 * m, 2.1 * m), 20), True) for m in TUNED)
    return Section("float32", pairs(shape), "warm", process, TUNED, tuple(rows), rows[0].choice, known, None, "")


def write_table(folder: str) -> None:
    """A table of usual size for the machine at hand."""
    shapes = [{"batch": 1, "heads": h, "kv_heads": 8, "head_dim": 128} for h in (8, 32, 40)]
    processes = [Process("libgomp", wait, None, "default") for wait in ("default", "active", "passive")]
    processes.append(Process("libgomp", "default", 10000, "default"))
    sections = tuple(section(shape, process) for shape in shapes for process in processes)
    found = here()
    table = Table("decode", found.hardware_id, found.limits_id, (), sections, ())
    store.save_table(os.path.join(folder, "decode.table.json"), table)


def per_call_ns(function: Callable[[int], Any], sizes: list[int]) -> float:
    """Mean time of one call, the loop's own cost included."""
    start = time.perf_counter_ns()
    for n in sizes:
        function(n)
    return (time.perf_counter_ns() - start) / len(sizes)


def lookups(policy: Policy, counting: Policy, rounds: int) -> dict[str, list[float]]:
    """Time of one call in ns, a list over rounds, for each way to ask: of a policy, and of one that counts misses.

    A quarter of the n lie outside the tuned region; `miss` asks for such alone.
    """
    bound = policy.bind("decode", **AXES)
    borders, _ = policy._ranges("decode", AXES)
    assert bound(5000).basis == "INTERPOLATED"
    ways: dict[str, Callable[[int], Any]] = {
        "bisect": partial(bisect_right, borders),
        "bound": bound,
        "choose": lambda n: policy.choose("decode", n, heads=32, kv_heads=8, head_dim=128, dtype="float32"),
        "choose, no axes": lambda n: policy.choose("decode", n),
        "bound, counting": counting.bind("decode", **AXES),
        "choose, counting": lambda n: counting.choose("decode", n, heads=32, kv_heads=8, head_dim=128, dtype="float32"),
        "miss": lambda n: policy.choose("decode", n + TUNED[-1], heads=32, kv_heads=8, head_dim=128, dtype="float32"),
        "miss, counting": lambda n: counting.choose(
            "decode", n + TUNED[-1], heads=32, kv_heads=8, head_dim=128, dtype="float32"
        ),
    }
    chance = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        sizes = [chance.choice((chance.randint(1, 2**21), chance.choice(TUNED))) for _ in range(CALLS)]
        for name in chance.sample(list(ways), len(ways)):
            found[name].append(per_call_ns(ways[name], sizes))
    return found


def child_environment() -> dict[str, str]:
    """The environment of children: an installed package has its bytecode cached, so they may cache theirs."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def interpreter_ms(code: str, folder: str) -> float:
    """Wall time of a fresh interpreter that runs the code, in ms."""
    start = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, env=child_environment())
    return (time.perf_counter_ns() - start) / 1e6


def interpreters(folder: str, count: int) -> dict[str, list[float]]:
    """Wall time of fresh interpreters in ms: bare, and with the import."""
    codes = {"bare": "pass", "import": "import advisor.lookup"}
    chance = random.Random(1)
    found: dict[str, list[float]] = {name: [] for name in codes}
    interpreter_ms(codes["import"], folder)  # writes the bytecode
    for _ in range(count):
        for name in chance.sample(list(codes), len(codes)):
            found[name].append(interpreter_ms(codes[name], folder))
    return found


LOAD = """
import sys, time
from advisor.lookup import Policy
start = time.perf_counter_ns()
policy = Policy.load(sys.argv[1])
stop = time.perf_counter_ns()
assert policy.choose("decode", 5000, heads=8).basis == "INTERPOLATED", policy.notes
print((stop - start) / 1e6)
"""


def first_loads_ms(folder: str, count: int) -> list[float]:
    """The first `Policy.load` of fresh processes, in ms: what a server pays, the import of json included."""
    command = [sys.executable, "-c", LOAD, folder]
    found = []
    for _ in range(count + 1):
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=child_environment())
        found.append(float(done.stdout))
    return found[1:]  # the first one writes the bytecode


# --- judge ---


def interval(values: list[float], seed: int = 0) -> Ratio:
    """The median with a bootstrap 95 % interval."""
    chance = random.Random(seed)
    drawn = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(1000))
    return Ratio(statistics.median(values), drawn[25], drawn[974])


def judge(calls: dict[str, list[float]], starts: dict[str, list[float]], loads: list[float]) -> dict[str, Any]:
    """Figures, ratios and which bars are met."""
    bound = [a / b for a, b in zip(calls["bound"], calls["bisect"], strict=True)]
    over = [a - b for a, b in zip(starts["import"], starts["bare"], strict=True)]
    found = {
        "bound / bisect": interval(bound),
        "choose_ns": interval(calls["choose"]),
        "choose, counting ns": interval(calls["choose, counting"]),
        "miss, counting ns": interval(calls["miss, counting"]),
        "load_ms": interval(loads),
        "import_ms": interval(over),
    }
    medians = {name: statistics.median(values) for name, values in calls.items()}
    return {
        "median_ns": medians,
        "bare_python_ms": statistics.median(starts["bare"]),
        "results": {
            name: {**value._asdict(), "bar": BARS[name], "met": value.median <= BARS[name]}
            for name, value in found.items()
        },
    }


# --- print ---


def show(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f"{name:<20}{ns:>9.0f} ns" for name, ns in report["median_ns"].items()]
    lines.append(f"{'bare Python':<20}{report['bare_python_ms']:>9.1f} ms")
    lines.append(f"{'':<20}{'median':>9}   95 % interval      bar")
    for name, row in report["results"].items():
        word = "met" if row["met"] else "MISSED"
        lines.append(
            f"{name:<20}{row['median']:>9.3g}   {row['low']:.3g} .. {row['high']:<9.3g}{row['bar']:>6g}  {word}"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, judge, print. Exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_table(folder)
        os.environ["ADVISOR_HOME"] = folder  # what is counted goes there
        counting = Policy.load(folder, count_misses=True)
        calls = lookups(Policy.load(folder, count_misses=False), counting, options.rounds)
        starts = interpreters(folder, options.processes)
        loads = first_loads_ms(folder, options.processes)
    report = judge(calls, starts, loads)
    print(json.dumps(report) if options.json else show(report))
    return 0 if all(row["met"] for row in report["results"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
