"""Kernels on a GPU beside the libraries, each other and an exhaustive pass, in parts of under nine minutes each.

    python -m benchmarks.gpu PART --out DIR [--seconds S] [--resume] [--kernel forward,fused] [--shapes LABELS] [--n 64]
    python -m benchmarks.gpu show DIR [--json]

Parts: check (every variant right on edges, timed once; a line each), ahead (compiles what the next parts call, a dozen
workers at a time), tune (the product tunes the n of every cell, cold), race (its choice, the best own variants, the
libraries and the read floor take turns), chain (every own variant of forward, backward and fused by its thread
mapping, in turn), regret (our search beside an exhaustive pass), cold (the first call of a fresh process), counters
(what a call moves, beside live times). Cells, a kernel in one dtype and shape: gpu_cells.py. A row is appended to
DIR/rows.jsonl when it is whole; with --resume a part goes on behind the rows that it finds. `show` judges and prints
them. Exit status 3: rows are missing, for want of time or because something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # so that -m finds the modules beside this one

import gpu_ahead
import gpu_chain
import gpu_check
import gpu_cold
import gpu_counters
import gpu_race
import gpu_regret
import gpu_show
import gpu_tune
from gpu_cells import CELLS, CHAIN, FEW, REGIME, exists, is_first, known_of, labels, sources
from gpu_crew import ahead
from gpu_ground import FLOOR, Lost, conditions_of, device_machine, opened, state, tools, tuned
from gpu_rows import Row, Store
from gpu_tune import Figures
from kernel_race import Deadline, Refused

from advisor.arguments import sizes as sizes_of
from advisor.errors import AdvisorError
from advisor.kernels.gpu.driver import DeviceError
from advisor.records import Choice, Machine

REGRET_SIZES = (512, 2048)

NEED_S = {"tune": gpu_tune.LEAST_S, "race": 6.0, "chain": 8.0, "regret": 10.0, "cold": 10.0, "counters": 20.0}
"""A part begins no row with less time left than that, or than half its rows took: the first one may compile for all."""


class Step(NamedTuple):
    """One row: its key, the kernels that it depends on, how it is measured, and what is done in its place where an
    earlier call has it."""

    key: dict[str, Any]
    kernels: tuple[str, ...]
    measure: Callable[[], Figures]
    skip: Callable[[], None] | None = None


class Call(NamedTuple):
    """What one call of this script works with."""

    asked: argparse.Namespace
    store: Store
    machine: Machine
    deadline: Deadline

    def is_done(self, key: dict[str, Any], kernels: tuple[str, ...]) -> bool:
        """Whether an earlier call has the row, with the sources as they are now."""
        return bool(self.asked.resume) and self.store.done(self.asked.part, key, sources(kernels))


def kernels_of(label: str) -> tuple[str, ...]:
    """The kernels whose variants a row of a cell depends on."""
    kernel = CELLS[label].kernel
    return (kernel, FLOOR) if kernel == "decode" else (kernel,)


# --- the rows of each part ---


@contextlib.contextmanager
def tune_steps(call: Call) -> Iterator[list[Step]]:
    """A row a cell; the time is shared among those that are left, by their n, twice as much for those that say most."""
    listed = {label: call.asked.n or CELLS[label].sizes for label in call.asked.shapes}
    left = [label for label in listed if not call.is_done({"shape": label}, kernels_of(label))]
    weights = {label: len(listed[label]) * (2 if is_first(label) else 1) for label in left}
    with gpu_tune.tuner(call.asked.out, call.machine) as at:

        def one(label: str) -> Figures:
            after = left[left.index(label) :]
            budget_s = call.deadline.left_s() * weights[label] / sum(weights[other] for other in after)
            return gpu_tune.measure(at, after, listed[label], budget_s)

        yield [
            Step({"shape": label}, kernels_of(label), lambda label=label: one(label))  # type: ignore[misc]
            for label in listed
        ]


@contextlib.contextmanager
def race_steps(call: Call) -> Iterator[list[Step]]:
    """A row a cell and n, those that say most first."""
    rows = sorted(
        ((label, n) for label in call.asked.shapes for n in call.asked.n or CELLS[label].sizes),
        key=lambda row: rank(*row),
    )
    kernels = [kernel for label in call.asked.shapes for kernel in kernels_of(label)]
    left = {kernel: tuned(call.asked.out, kernel) for kernel in dict.fromkeys(kernels)}
    with opened(call.machine, call.deadline, kernels) as ground:

        def one(label: str, n: int) -> Figures:
            return gpu_race.measure(ground, left[CELLS[label].kernel], label, n)

        yield [
            Step({"shape": label, "n": n}, kernels_of(label), lambda label=label, n=n: one(label, n))  # type: ignore[misc]
            for label, n in rows
        ]


def rank(label: str, n: int) -> int:
    """How early a race comes: cells with bars at few n, other cells at two, cells with bars at the rest, the rest."""
    if is_first(label):
        return 0 if n in FEW or CELLS[label].kernel == "decode" else 2
    return 1 if n in FEW[1::2] else 3


@contextlib.contextmanager
def chain_steps(call: Call) -> Iterator[list[Step]]:
    """A row an n."""
    left = {kernel: tuned(call.asked.out, kernel) for kernel in gpu_chain.KERNELS}
    with opened(call.machine, call.deadline, gpu_chain.KERNELS) as ground:
        yield [
            Step({"n": n}, gpu_chain.KERNELS, lambda n=n: gpu_chain.measure(ground, left, n))  # type: ignore[misc]
            for n in call.asked.n or gpu_chain.SIZES
        ]


@contextlib.contextmanager
def regret_steps(call: Call) -> Iterator[list[Step]]:
    """A row an n of the first cell, ascending: what one search learned helps the next."""
    label = call.asked.shapes[0]
    wanted = gpu_regret.request(call.machine, label, call.asked.n or REGRET_SIZES)
    before = None
    with gpu_regret.walking(call.asked.out, label, wanted) as walk:

        def one(problem: Any) -> Figures:
            nonlocal before
            data, before = gpu_regret.measure(walk, problem, before, time.monotonic() + call.deadline.left_s())
            return data, conditions_of(walk.log.path)

        def skip(problem: Any) -> None:
            nonlocal before
            before = gpu_regret.step(walk, problem, before)

        yield [
            Step({"shape": label, "n": p.n}, kernels_of(label), lambda p=p: one(p), lambda p=p: skip(p))  # type: ignore[misc]
            for p in wanted.problems
        ]


@contextlib.contextmanager
def cold_steps(call: Call) -> Iterator[list[Step]]:
    """A row a kind of start, and one sweep."""

    def one(choice: Choice) -> Figures:
        data = gpu_cold.measure(call.machine, choice)
        return data, {"after": data["processes"]["empty"][-1]["conditions"]}

    yield [
        Step({"what": "sweep"}, kernels_of(gpu_cold.SHAPE), lambda: gpu_cold.sweep(call.machine)),
        *(
            Step(
                {"what": choice.build.variant, "n": gpu_cold.N},
                kernels_of(gpu_cold.SHAPE),
                lambda choice=choice: one(choice),  # type: ignore[misc]
            )
            for choice in gpu_cold.starts(call.machine)
        ),
    ]


@contextlib.contextmanager
def counters_steps(call: Call) -> Iterator[list[Step]]:
    """A row a cell and n, as gpu_counters.WANTED has them for the kernels that were asked for."""
    kernels = {CELLS[label].kernel for label in call.asked.shapes}
    wanted = [one for one in gpu_counters.WANTED if CELLS[one.label].kernel in kernels]
    with opened(call.machine, call.deadline, kernels) as ground:

        def one(row: gpu_counters.Wanted) -> Figures:
            return gpu_counters.measure(ground, tuned(call.asked.out, CELLS[row.label].kernel), row)

        yield [
            Step({"shape": row.label, "n": row.n}, kernels_of(row.label), lambda row=row: one(row))  # type: ignore[misc]
            for row in wanted
        ]


PARTS: dict[str, Callable[[Call], contextlib.AbstractContextManager[list[Step]]]] = {
    "tune": tune_steps,
    "race": race_steps,
    "chain": chain_steps,
    "regret": regret_steps,
    "cold": cold_steps,
    "counters": counters_steps,
}


# --- running them ---


def walk(call: Call, steps: Sequence[Step]) -> list[str]:
    """Measure what is missing, as far as time goes. Returns what is missing still, and why."""
    missing, taken_s = list[str](), list[float]()
    for step in ordered(call, steps):
        if call.is_done(step.key, step.kernels):
            if step.skip:
                step.skip()
            continue
        if call.deadline.left_s() < needed_s(call.asked.part, taken_s):
            missing.append(f"{words(step.key)}: no time")
            continue
        row = measured(call, step)
        call.store.add(row)
        taken_s.append(row.seconds)
        missing += [f"{words(step.key)}: {row.failed}"] if row.failed else []
        print(f"{call.asked.part} {words(step.key)}: {row.failed or 'done'}, {row.seconds:.1f} s", flush=True)
    return missing


def needed_s(part: str, taken_s: Sequence[float]) -> float:
    """Seconds that a row of a part needs, by those before it in this call; the rows of tune share what there is."""
    least = NEED_S[part]
    return least if part == "tune" or not taken_s else max(least, statistics.median(taken_s))


def ordered(call: Call, steps: Sequence[Step]) -> list[Step]:
    """The steps, those that failed before last: one that loses the device each time must not keep others from it."""
    return sorted(steps, key=lambda step: step.skip is None and call.store.failed(call.asked.part, step.key))


def measured(call: Call, step: Step) -> Row:
    """One row, a failed one where it cannot be measured. Raises Lost, its row kept, where nothing more can be."""
    begun, known = time.monotonic(), sources(step.kernels)

    def row(figures: Figures, failed: str = "") -> Row:
        about = {"at": now(), **state(call.machine, figures[1], figures[0].get("regime", REGIME))}
        return Row(call.asked.part, step.key, known, about, time.monotonic() - begun, figures[0], failed)

    try:
        return row(step.measure())
    except (Refused, AdvisorError) as error:
        return row(({}, {}), str(error))
    except Lost as error:
        call.store.add(row(({}, {}), str(error)))
        raise


def now() -> str:
    """The time to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def words(key: dict[str, Any]) -> str:
    """A key in a few words."""
    return " ".join(f"{name}={value}" for name, value in key.items())


def run(asked: argparse.Namespace) -> int:
    """One part; its exit status."""
    try:
        with Store(asked.out) as store:
            call = Call(asked, store, device_machine(), Deadline(asked.seconds))
            with PARTS[asked.part](call) as steps:
                missing = walk(call, steps)
    except (Refused, Lost, AdvisorError, DeviceError) as error:
        print(f"{asked.part}: {error}", file=sys.stderr)
        return 1
    for one in missing:
        print(f"missing: {one}", file=sys.stderr)
    return 3 if missing else 0


def check(asked: argparse.Namespace) -> int:
    """The part `check`, whose rows change while they are made; its exit status."""
    machine = device_machine()
    wanted, broken = gpu_check.tasks(asked.kernel or gpu_check.KERNELS)
    begun = time.monotonic()

    def known(task: gpu_check.Task) -> dict[str, str]:
        return {task.variant.name: task.variant.source_hash, **{tool.name: tool.version for tool in tools()}}

    with Store(asked.out) as store:
        done = {json.dumps(row.key): row for row in store.of("check") if asked.resume and row.data.get("whole")}

        def is_left(task: gpu_check.Task) -> bool:
            row = done.get(json.dumps(task.key))
            return row is None or row.sources != known(task)

        def keep(task: gpu_check.Task, data: dict[str, Any]) -> None:
            about = {
                "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                **state(machine, regime="warm"),
            }
            store.add(Row("check", task.key, known(task), about, time.monotonic() - begun, data))

        whole = gpu_check.run(machine, [one for one in wanted if is_left(one)], Deadline(asked.seconds), keep)
        listed = [(" ".join(row.key.values()), row.data) for row in store.of("check")]
        said = [*(gpu_check.shown(*one) for one in listed), *gpu_check.summary(listed)]
        print("\n".join([*said, *(f"cannot be read: {one}" for one in broken)]))
    return 0 if whole and not broken else 3


def compile_ahead(asked: argparse.Namespace) -> int:
    """The part `ahead`, which leaves no rows but full caches; its exit status."""
    machine, until = device_machine(), time.monotonic() + asked.seconds
    wanted = gpu_ahead.to_compile(asked.out, machine, asked.shapes, asked.whole.split(","))
    known = {kernel: known_of(kernel) for kernel in {problem.kernel for problem, _ in wanted}}
    found = ahead(machine.gpus[0], known, wanted, until)
    print("\n".join(f"{name}: {why}" for name, why in found.failed.items()))
    counts = f"{found.done} of {len(wanted)} choices in {found.seconds:.0f} s"
    print(f"compiled {counts}, {len(found.failed)} failed, {found.left} left for want of time")
    return 0 if not found.left else 3


# --- the command ---


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    for name in ("check", "ahead", *PARTS):
        part = parts.add_parser(name)
        part.add_argument("--out", required=True, metavar="DIR", help="where rows are kept")
        part.add_argument("--seconds", type=float, default=500.0, help="no row is begun that would end later")
        part.add_argument("--resume", action="store_true", help="leave out rows that are there")
        part.add_argument("--kernel", default="", help=f"comma separated; the default: {', '.join(CHAIN)}")
        part.add_argument("--shapes", default="", help="labels of cells; the default: all of these kernels")
        part.add_argument("--n", default="", help="sizes, comma separated; the default depends on the part")
        part.add_argument("--whole", default="", help="cells of which `ahead` compiles everything, for `regret`")
    shown = parts.add_parser("show")
    shown.add_argument("out", metavar="DIR")
    shown.add_argument("--json", action="store_true", help="what was judged, as one object")
    return parser


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, read. Exits with status 2 where it makes no sense."""
    parser = arguments()
    asked = parser.parse_args(words)
    if asked.part != "show":
        asked.kernel = tuple(filter(None, asked.kernel.split(",")))
        found = tuple(filter(None, asked.shapes.split(",")))
        unknown = [label for label in found if label not in CELLS]
        if unknown:
            parser.error(f"no such cell: {', '.join(unknown)}; known: {', '.join(CELLS)}")
        asked.shapes = found or tuple(label for label in labels(asked.kernel or CHAIN) if exists(label))
        asked.n = sizes_of(asked.n) if asked.n else ()
    return asked


SPECIAL = {"check": check, "ahead": compile_ahead}
"""Parts whose work is not a row after another."""


def main() -> int:
    """Run a part, or show what there is."""
    asked = parsed()
    if asked.part != "show":
        return SPECIAL.get(asked.part, run)(asked)
    found = gpu_show.judged(asked.out)
    print(json.dumps(gpu_show.plain(found), indent=1) if asked.json else "\n".join(gpu_show.lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
