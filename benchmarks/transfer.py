"""Transfer to a GPU that was never tuned, by replay: each recorded space in turn, the others of its kernel known.

    python benchmarks/transfer.py DIR [--draws 10] [--kernel NAME,...] [--devices FILE] [--json FILE|-]

DIR holds exhaustive spaces in the T4 format, KERNEL-DEVICE.T4.json.gz, at any depth; each device is a machine. At 0
trials the first choice is taken as it comes, nothing is measured; at 10 and 25 the best of so many is. Ours (the
tuner's search, which knows the others) stands beside two that also know them and measure in turn what was best there:

    common    on all of them together, by geometric mean of time over the best
    nearest   on the most similar one: multiprocessors, bandwidth, arithmetic, L2 and maker, from data sheets

All are given the same trials of the same draws: 15 % of a space taken away at random. Printed: mean over draws of the
time over the optimum for each space, the geometric mean over spaces with a bootstrap 95 % interval over draws, for all
and for each kernel; ours over each baseline: ahead or behind where that interval leaves 1 out.

The devices' figures: FILE holds {"NAME": {"maker": "...", "multiprocessors": 108, ...}}, beside those known here. One
that nobody describes is as far from all others.

Some 3 seconds a draw for five spaces on one core. Ctrl-C prints what is finished. Exit status 0 done, 1 refused, 3
partly done.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from spaces_judge import Against, Array, Done, against, curves, mean_at, score
from threadpoolctl import threadpool_limits

from advisor.errors import AdvisorError, BadInput, Missing
from advisor.search.portfolio import elsewhere_log, weighed
from advisor.search.replay import Recorded, Setting, Strategy, load, replay
from advisor.search.strategy import Strategy as Ours
from advisor.search.traits import Traits, distance

TRIALS = (0, 10, 25)
KEPT = 0.85
"""Share of a space's configurations that a draw keeps: nothing else of a transfer is left to chance."""

OURS, BASELINES = "ours", ("common", "nearest")

DEVICES: dict[str, dict[str, float | str]] = {
    "A100": {"maker": "NVIDIA", "multiprocessors": 108, "gb_per_s": 1555, "tflops": 19.5, "l2_mb": 40},
    "A4000": {"maker": "NVIDIA", "multiprocessors": 48, "gb_per_s": 448, "tflops": 19.2, "l2_mb": 4},
    "A6000": {"maker": "NVIDIA", "multiprocessors": 84, "gb_per_s": 768, "tflops": 38.7, "l2_mb": 6},
    "MI250X": {"maker": "AMD", "multiprocessors": 110, "gb_per_s": 1638, "tflops": 23.9, "l2_mb": 8},
    "W6600": {"maker": "AMD", "multiprocessors": 28, "gb_per_s": 224, "tflops": 10.4, "l2_mb": 2},
    "W7800": {"maker": "AMD", "multiprocessors": 70, "gb_per_s": 576, "tflops": 45.2, "l2_mb": 6},
}
"""Source: the makers' data sheets; fp32 without matrix units; of an MI250X one of its two dies, as programs see it."""


class InTurn:
    """Configurations in a fixed order."""

    def __init__(self, order: Array) -> None:
        self._left = [int(index) for index in order][::-1]

    def ask(self) -> int | None:
        """The next one, None after the last."""
        return self._left.pop() if self._left else None

    def tell(self, index: int, value: float | None) -> None:
        """Nothing is learned."""


class Report(NamedTuple):
    """What came of it: searches, and ours against the baselines for every group of spaces."""

    done: list[Done]
    verdicts: dict[str, list[Against]]


# --- what is replayed ---


def spaces(folder: Path, kernels: Sequence[str]) -> list[Recorded]:
    """The spaces of a folder that have another device of their kernel, in the order of their labels.

    Raises:
        Missing: there is none.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        if path.name.lower().endswith((".json", ".json.gz")) and path.is_file():
            try:
                found.append(load(path))
            except AdvisorError as error:
                print(f"{path.name} left out: {error}", file=sys.stderr)
    wanted = [space for space in found if not kernels or space.kernel in kernels]
    usable = [space for space in wanted if others(space, wanted)]
    if not usable:
        raise Missing("two devices of one kernel are needed", got=str(folder), allowed="KERNEL-DEVICE.T4.json.gz")
    return sorted(usable, key=lambda space: space.label)


def others(space: Recorded, all_of_them: Sequence[Recorded]) -> list[Recorded]:
    """The other devices of a space's kernel, with the same parameters."""
    alike = (s for s in all_of_them if s.kernel == space.kernel and set(s.names) == set(space.names))
    return [one for one in alike if one.device != space.device]


def drawn(space: Recorded, seed: int) -> Recorded:
    """A space with `KEPT` of its configurations; one that worked is always among them."""
    kept = np.random.default_rng(seed).random(len(space.configurations)) < KEPT
    kept[int(np.nanargmin(np.where(kept, space.time_ms, np.nan)))] = True
    rows = np.flatnonzero(kept)
    return space._replace(
        configurations=tuple(space.configurations[i] for i in rows),
        time_ms=space.time_ms[rows],
        runs_ms=tuple(space.runs_ms[i] for i in rows),
        compile_ms=space.compile_ms[rows],
        overhead_ms=space.overhead_ms[rows],
        failed=space.failed[rows],
    )


def named(space: Recorded) -> list[dict[str, Any]]:
    """The configurations as name -> value."""
    return [dict(zip(space.names, values, strict=True)) for values in space.configurations]


def logs(space: Recorded, known: Sequence[Recorded]) -> Array:
    """Log of time over the best of a space's configurations on the others [others, configurations]."""
    times = [
        [(one, None if failed else float(ms)) for one, ms, failed in zip(named(s), s.time_ms, s.failed, strict=True)]
        for s in known
    ]
    return elsewhere_log(named(space), times)


def strategies(
    space: Recorded, known: Sequence[Recorded], devices: Mapping[str, Traits], seed: int
) -> Iterator[tuple[str, Strategy]]:
    """Ours and the baselines, fresh, for one space."""
    table = logs(space, known)
    own = devices.get(space.device, {})
    away = [distance(own, devices.get(one.device, {})) for one in known]
    yield OURS, Ours(named(space), seed=seed, others=weighed(table, away))
    yield "common", InTurn(np.argsort(table.mean(0), kind="stable"))
    yield "nearest", InTurn(np.argsort(table[int(np.argmin(away))], kind="stable"))


def searched(found: Sequence[Recorded], devices: Mapping[str, Traits], draws: int) -> Iterator[Done]:
    """Every search, draw by draw, so that what is done after Ctrl-C can be compared."""
    evaluations = max(1, *TRIALS)
    for seed in range(draws):
        for whole in found:
            space = drawn(whole, seed)
            for name, strategy in strategies(space, others(whole, found), devices, seed):
                curve = replay(space, strategy, Setting(evaluations, seed))
                ratio = tuple(map(float, curve.ratio))
                yield Done(name, whole.label, whole.kernel, seed, ratio, float(curve.cost_s[-1]), 0.0)


# --- judging ---


def at(trials: int) -> int:
    """The evaluation whose best so far is the choice after so many trials: with none the first choice is taken."""
    return max(1, trials)


def judged(done: Sequence[Done]) -> dict[str, list[Against]]:
    """Ours against each baseline: over all spaces, and over those of each kernel."""
    kernels = sorted({one.kernel for one in done})
    groups = {"all": list(done), **{k: [one for one in done if one.kernel == k] for k in kernels}}
    found = {}
    for group, own in groups.items():
        table = curves(own)
        found[group] = [
            against(table[OURS], table[name], name, at(trials))._replace(budget=trials)
            for trials in TRIALS
            for name in BASELINES
        ]
    return found


# --- printing ---


def shown(report: Report) -> str:
    """Tables a space and a group, then ours over the baselines."""
    lines = [f"{'space':26} {'':8} " + " ".join(f"{trials:>18}" for trials in TRIALS)]
    table = curves(report.done)
    for label in sorted(table[OURS]):
        for name in (OURS, *BASELINES):
            cells = " ".join(f"{mean_at(table[name][label], at(trials)):18.3f}" for trials in TRIALS)
            lines.append(f"{label:26} {name:8} {cells}")
    for group, verdicts in report.verdicts.items():
        own = curves([one for one in report.done if group in ("all", one.kernel)])
        for name in (OURS, *BASELINES):
            found = [score(own[name], at(trials)) for trials in TRIALS]
            cells = " ".join(f"{f'{s.value:.3f} ({s.low:.3f}-{s.high:.3f})':>18}" for s in found)
            lines.append(f"{group:26} {name:8} {cells}")
        for one in verdicts:
            ratio = one.ratio
            lines.append(
                f"{group}: ours over {one.peer} at {one.budget} trials {ratio.value:.3f} "
                f"({ratio.low:.3f}-{ratio.high:.3f}) {one.verdict}"
            )
    return "\n".join(lines)


def document(report: Report) -> dict[str, Any]:
    """Every figure, for programs."""
    verdicts = {
        group: [{**one._asdict(), "ratio": list(one.ratio)} for one in v] for group, v in report.verdicts.items()
    }
    searches = [
        {"strategy": d.strategy, "space": d.space, "draw": d.seed, "ratio": {t: d.ratio[at(t) - 1] for t in TRIALS}}
        for d in report.done
    ]
    return {"trials": list(TRIALS), "verdicts": verdicts, "searches": searches}


# --- the command ---


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line.

    Raises:
        BadInput: fewer than two draws, which have no interval.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--kernel", default="")
    parser.add_argument("--devices", type=Path)
    parser.add_argument("--json", dest="json_path")
    found = parser.parse_args(words)
    if found.draws < 2:
        raise BadInput("an interval needs at least two draws", got=found.draws)
    found.kernels = [word for word in found.kernel.split(",") if word]
    return found


def run(found: Sequence[Recorded], devices: Mapping[str, Traits], draws: int) -> tuple[Report | None, bool]:
    """The report of all draws that ended, None where not one did, and whether Ctrl-C came."""
    done: list[Done] = []
    stopped = False
    try:
        with threadpool_limits(limits=1):
            for one in searched(found, devices, draws):
                done.append(one)
    except KeyboardInterrupt:
        stopped = True
    whole = 3 * len(found)
    kept = done[: len(done) - len(done) % whole]
    return (Report(kept, judged(kept)) if kept else None), stopped


def main(words: Sequence[str] | None = None) -> int:
    """Replay, judge, print. Returns the exit status."""
    try:
        asked = arguments(sys.argv[1:] if words is None else words)
        devices = DEVICES | (json.loads(asked.devices.read_text("utf-8")) if asked.devices else {})
        report, stopped = run(spaces(asked.folder, asked.kernels), devices, asked.draws)
    except (AdvisorError, OSError, ValueError) as error:
        print(f"transfer: {error}", file=sys.stderr)
        return 1
    if report is None:
        print("transfer: stopped before the first draw ended", file=sys.stderr)
        return 3
    if asked.json_path == "-":
        print(json.dumps(document(report), indent=1))
    else:
        print(shown(report))
    if asked.json_path not in (None, "-"):
        Path(asked.json_path).write_text(json.dumps(document(report), indent=1) + "\n", "utf-8")
    return 3 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
