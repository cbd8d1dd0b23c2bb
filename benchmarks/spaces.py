"""Searching recorded spaces: ours beside Kernel Tuner's strategies, Optuna's TPE and random, by replay, in one run.

    python benchmarks/spaces.py [DIR] [--seeds 25] [--first-seed 0] [--strategies ours,tpe,...] [--kernel NAME,...]
        [--prior] [--noise [K]] [--json FILE|-] [--jobs N]

DIR holds exhaustive spaces in the T4 format, KERNEL-DEVICE.T4.json.gz, at any depth. A distinct configuration of the
space counts once, whoever asks for it; one that failed counts and has no time; one outside the space costs nothing.
Printed: mean over seeds of best so far / optimum at 25, 50, 100 and 200 evaluations for each space; the geometric mean
over spaces with a bootstrap 95 % interval over seeds, for all and for each kernel; ours over each peer, ahead or behind
where that interval leaves 1 out; cost (compile, overhead, runs) and each search's own time.

With --prior every search may know the same kernel's other devices in DIR, never the one it searches; ours uses them,
the portfolio takes nothing else, and the budgets are 1, 5, 10 and 25. With --noise a search is told the mean of K raw
runs drawn at random, K = 1 by default, and is judged by the true mean of what looked best.

Ctrl-C prints what is there so far. Exit status 0 done, 1 refused, 3 partly done.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import json
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spaces_judge import Array, Broken, Curves, Done, against, curves, mean_at, score
from spaces_more import more
from spaces_peers import absent, strategies

from advisor.errors import AdvisorError, BadInput, Missing
from advisor.search.replay import Account, Recorded, Setting, load

BUDGETS, PRIOR_BUDGETS = (25, 50, 100, 200), (1, 5, 10, 25)
OURS = "ours"
HERE = Path(__file__).resolve().parent

LIMIT_S = 600
"""A search that takes longer is taken for stuck: Kernel Tuner's hybrid_vndx asks nothing more on some tiny spaces."""


class Task(NamedTuple):
    """One search to run. `known`: files of the same kernel's other devices."""

    path: str
    strategy: str
    setting: Setting
    known: tuple[str, ...]


# --- what to run ---


def space_files(folder: Path) -> list[Path]:
    """The T4 files of a folder, at any depth.

    Raises:
        Missing: there is none.
    """
    found = sorted(p for p in folder.rglob("*") if p.name.lower().endswith((".json", ".json.gz")) and p.is_file())
    if not found:
        raise Missing("a folder with recorded spaces is needed", got=str(folder), allowed="*.json, *.json.gz")
    return found


def loaded(files: Sequence[Path]) -> dict[str, Recorded]:
    """File -> space; what is no T4 file is left out with a line, as are notes."""
    found: dict[str, Recorded] = {}
    for path in files:
        try:
            found[str(path)] = space = load(path)
        except AdvisorError as error:
            print(f"{path.name} left out: {error}", file=sys.stderr)
            continue
        for note in space.notes:
            print(note, file=sys.stderr)
    if not found:
        raise BadInput("the folder must hold a T4 file", got=f"{len(files)} files that are none")
    return found


def others(spaces: Mapping[str, Recorded], path: str) -> tuple[str, ...]:
    """Files of the same kernel, with the same parameters, on another device."""
    mine = spaces[path]
    alike = (p for p, s in spaces.items() if s.kernel == mine.kernel and set(s.names) == set(mine.names))
    return tuple(p for p in alike if p != path and spaces[p].device != mine.device)


def tasks(spaces: Mapping[str, Recorded], arguments: argparse.Namespace, budgets: Sequence[int]) -> list[Task]:
    """Every search: space by space, seed by seed, so that what is done after Ctrl-C can be compared."""
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    found = []
    for path in spaces:
        known = others(spaces, path) if arguments.prior else ()
        if arguments.prior and not known:
            print(f"{spaces[path].label} left out: no other device of this kernel", file=sys.stderr)
            continue
        settings = [Setting(max(budgets), seed, arguments.noise) for seed in seeds]
        found += [Task(path, name, setting, known) for setting in settings for name in arguments.strategies]
    return found


# --- running ---


@functools.lru_cache(maxsize=32)
def _space(path: str) -> Recorded:
    return load(path)


def search(task: Task) -> Done | Broken:
    """Run one search; a strategy that cannot cope with a space must not end the others."""
    try:
        with time_limit(LIMIT_S):
            return _search(task)
    except Exception as error:
        return Broken(task.strategy, _space(task.path).label, f"{type(error).__name__}: {error}"[:200])


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A TimeoutError in the block when it takes longer; of the main thread, whose alarm is put back afterwards."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"it had not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _search(task: Task) -> Done:
    """Its own time is CPU time, so that a busy machine does not count."""
    space = _space(task.path)
    known = tuple(_space(path) for path in task.known)
    account = Account(space, task.setting)
    run = {**strategies(bool(task.known)), **more()}[task.strategy]
    began = time.process_time()
    run(account, task.setting.seed, known)
    own_ms = (time.process_time() - began) * 1e3 / max(1, len(account.told))
    curve = account.curve()
    return Done(
        task.strategy,
        space.label,
        space.kernel,
        task.setting.seed,
        tuple(float(value) for value in curve.ratio),
        float(curve.cost_s[-1]),
        own_ms,
    )


def _prepare() -> None:
    """A worker: Ctrl-C is the parent's business, and one thread is its share."""
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)


def run_all(work: Sequence[Task], jobs: int) -> Iterator[Done | Broken]:
    """Results as they come. Closing the iterator ends what has not begun."""
    if jobs == 1:
        yield from map(search, work)
        return
    context = multiprocessing.get_context("spawn")  # a fork after an OpenMP team was used hangs
    pool = concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare)
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # inherited: a worker hit while it starts would break the pool
    try:
        waiting = [pool.submit(search, task) for task in work]
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        for future in concurrent.futures.as_completed(waiting):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def collect(work: Sequence[Task], jobs: int) -> tuple[list[Done], list[Broken]]:
    """All results, those before Ctrl-C where it comes; progress with the time left goes to standard error."""
    found: list[Done | Broken] = []
    began = told = time.monotonic()
    try:
        for one in run_all(work, jobs):
            found.append(one)
            now = time.monotonic()
            if now - told > 2 or len(found) == len(work):
                told = now
                left = (now - began) / len(found) * (len(work) - len(found))
                print(f"{len(found)}/{len(work)} searches, about {left:.0f} s left", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: what follows is what was done so far", file=sys.stderr)
    return [one for one in found if isinstance(one, Done)], [one for one in found if isinstance(one, Broken)]


def without(done: Sequence[Done], broken: Sequence[Broken]) -> list[Done]:
    """The searches of strategies that never broke; a line for each that did."""
    for name, first in {one.strategy: one for one in reversed(broken)}.items():
        print(f"{name} left out: on {first.space} it ended in {first.reason}", file=sys.stderr)
    gone = {one.strategy for one in broken}
    return [one for one in done if one.strategy not in gone]


# --- telling ---


def _columns(cells: Sequence[str], first: int = 34) -> str:
    return cells[0].ljust(first) + "".join(cell.rjust(22) for cell in cells[1:])


def space_lines(table: Curves, budgets: Sequence[int]) -> list[str]:
    """Means of each space and strategy."""
    lines = [_columns(["mean of best / optimum", *(str(b) for b in budgets)])]
    for space in next(iter(table.values())):
        lines.append(f"{space} ({len(next(iter(table.values()))[space])} seeds)")
        for name, by_space in table.items():
            lines.append(_columns([f"  {name}", *(f"{mean_at(by_space[space], b):.3f}" for b in budgets)]))
    return lines


def _group(table: Curves, spaces: Sequence[str]) -> dict[str, dict[str, Array]]:
    return {name: {space: by_space[space] for space in spaces} for name, by_space in table.items()}


def _kernels(done: Sequence[Done], table: Curves) -> dict[str, list[str]]:
    """Heading -> spaces: all, then each kernel where there are several."""
    kernel = {one.space: one.kernel for one in done}
    spaces = list(next(iter(table.values())))
    names = list(dict.fromkeys(kernel[space] for space in spaces))
    each = {name: [space for space in spaces if kernel[space] == name] for name in names}
    return {"all": spaces, **(each if len(names) > 1 else {})}


def score_lines(table: Curves, heading: str, budgets: Sequence[int]) -> list[str]:
    """Geometric means over the spaces of a table, and ours over each peer."""
    count = len(next(iter(table.values())))
    lines = [_columns([f"geometric mean, {heading}: {count} spaces", *(str(b) for b in budgets)])]
    for name, by_space in table.items():
        scores = [score(by_space, budget) for budget in budgets]
        lines.append(_columns([f"  {name}", *(f"{s.value:.3f} [{s.low:.3f}, {s.high:.3f}]" for s in scores)]))
    for name, by_space in table.items() if OURS in table else ():
        if name != OURS:
            found = [against(table[OURS], by_space, name, budget) for budget in budgets]
            lines.append(_columns([f"  {OURS} / {name}", *(f"{a.ratio.value:.3f} {a.verdict}" for a in found)]))
    return lines


def cost_lines(done: Sequence[Done]) -> list[str]:
    """What everything evaluated would have cost, and what the search itself took."""
    lines = [_columns(["means over all searches", "cost of evaluations", "own time, CPU"])]
    for name in dict.fromkeys(one.strategy for one in done):
        mine = [one for one in done if one.strategy == name]
        cost, own = (sum(values) / len(mine) for values in ([o.cost_s for o in mine], [o.own_ms for o in mine]))
        lines.append(_columns([f"  {name}", f"{cost:.0f} s", f"{own:.2f} ms each"]))
    return lines


def report(done: Sequence[Done], table: Curves, budgets: Sequence[int]) -> str:
    """The whole text."""
    parts = [space_lines(table, budgets)]
    for heading, spaces in _kernels(done, table).items():
        parts.append(score_lines(_group(table, spaces), heading, budgets))
    parts.append(cost_lines(done))
    return "\n\n".join("\n".join(part) for part in parts)


def document(done: Sequence[Done], table: Curves, arguments: argparse.Namespace, budgets: Sequence[int]) -> Any:
    """The same figures as JSON data."""
    groups = {}
    for heading, spaces in _kernels(done, table).items():
        part = _group(table, spaces)
        scores = {name: {str(b): score(by_space, b)._asdict() for b in budgets} for name, by_space in part.items()}
        peers = [name for name in part if name != OURS] if OURS in part else []
        found = [against(part[OURS], part[name], name, b) for name in peers for b in budgets]
        verdicts = [{**a._asdict(), "ratio": a.ratio._asdict()} for a in found]
        groups[heading] = {"spaces": spaces, "scores": scores, "against": verdicts}
    means = {n: {s: {str(b): mean_at(c, b) for b in budgets} for s, c in by.items()} for n, by in table.items()}
    settings = {"seeds": arguments.seeds, "first_seed": arguments.first_seed, "noise_draws": arguments.noise}
    searches = [{**one._asdict(), "ratio": {str(b): one.ratio[b - 1] for b in budgets}} for one in done]
    return {**settings, "prior": arguments.prior, "means": means, "groups": groups, "searches": searches}


# --- the command ---


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("dir", nargs="?", type=Path, default=HERE.parent.parent / "shared" / "spaces")
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--strategies", default="", help="comma separated; all but those of spaces_more.py by default")
    parser.add_argument("--kernel", default="", help="only these kernels' spaces, comma separated")
    parser.add_argument("--prior", action="store_true", help="the same kernel's other devices are known")
    parser.add_argument("--noise", type=int, nargs="?", const=1, default=0, help="tell the mean of K raw runs")
    parser.add_argument("--json", default="", help="write the figures to this file; - for standard output")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args(words)
    if min(arguments.seeds, arguments.jobs) < 1 or min(arguments.noise, arguments.first_seed) < 0:
        parser.error("--seeds and --jobs are at least 1, --noise and --first-seed at least 0")
    usual = list(strategies(arguments.prior))
    known = [*usual, *more()]
    arguments.strategies = arguments.strategies.split(",") if arguments.strategies else usual
    if unknown := [name for name in arguments.strategies if name not in known]:
        parser.error(f"no such strategy: {', '.join(unknown)}; there are {', '.join(known)}")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Run, print, and say how it ended."""
    arguments = parsed(words)
    budgets = PRIOR_BUDGETS if arguments.prior else BUDGETS
    for line in absent():
        print(line, file=sys.stderr)
    try:
        spaces = loaded(space_files(arguments.dir))
    except AdvisorError as error:
        print(error, file=sys.stderr)
        return 1
    wanted = arguments.kernel.split(",") if arguments.kernel else [space.kernel for space in spaces.values()]
    work = tasks({path: s for path, s in spaces.items() if s.kernel in wanted}, arguments, budgets)
    finished, broken = collect(work, min(arguments.jobs, max(1, math.ceil(len(work) / 4))))
    done = without(finished, broken)
    table = curves(done)
    if not done or not any(table.values()):
        print("nothing was finished that can be compared", file=sys.stderr)
        return 3
    if arguments.json != "-":
        print(report(done, table, budgets))
    if arguments.json:
        text = json.dumps(document(done, table, arguments, budgets), allow_nan=False, indent=1)
        print(text) if arguments.json == "-" else Path(arguments.json).write_text(text + "\n", "utf-8")
    return 0 if len(done) == len(work) else 3


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted before any search ended", file=sys.stderr)
        sys.exit(3)
