"""The published CPU figures, and the model of `simulated.py` fitted to them.

How it was fitted: least squares of the logarithms over all figures at once, 16 parameters; then, from there, least 4th,
8th, 16th, 32nd and 64th powers of the relative errors, which bring the worst figure nearest (the bar is on the worst).
Between the steps every single shot on all cores is given the whole number of scheduler slices, at most
`MOST_SLICES`, that explains it best: nobody averaged those, the paper says so, and how often an intruder came is not
for a model to say. A thread count that the paper calls best must also beat half and twice as many. Decode on all cores
has the same four slices at every n up to 32768, and none above: that the intruder was not there at n = 65536 and
1048576 is taken from the figures, not explained.

    python tests/simulated_paper.py FOLDER      fits, and prints the parameters and every figure
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from simulated_machine import DECODE_SLICES, Model, Traits, fork_s, published_place, spawn_s, work_s

START = Model(1.4, 80, 95, 10, 650, 370, 4.8, 150, 70, 0.15, 1700, 3500, 0.2, 1700, 4000, 0.1)
"""Where the fit starts: read off single figures by hand."""

ALL_CORES, MOST_SLICES, LAST_STALLED = 128, 5, 32768

LEAST_SLICE_SHARE = 0.05
"""A slice that is less of a figure than this cannot be told from it."""

BAR, FAR = 0.2, 3.0
"""Error that is allowed, and so many times of it count no more than this many: powers would overflow."""

BEST_BY, BEST_WEIGHT = 0.005, 20.0
"""By how much the logarithm a best thread count is to win, and what falling short weighs."""

POWERS = (0, 0, 0, 4, 8, 16, 32, 64, 64)
"""Of the errors, a step each; 0: squares of logarithms."""


class Call(NamedTuple):
    """One timed call of the paper; `law` as of `work_s`."""

    law: str
    n: int
    threads: int


class Figure(NamedTuple):
    """One printed figure: the time of a call in seconds, or its ratio to that of another."""

    call: Call
    over: Call | None
    value: float


def rows(folder: str, name: str) -> list[dict[str, str]]:
    """The rows of a file of figures; its first line says what they are."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def decode_figures(folder: str) -> list[Figure]:
    """Decode with 64 and with 128 threads."""
    return [
        Figure(Call("decode", int(row["n"]), threads), None, float(row[f"seconds_{threads}_threads"]))
        for row in rows(folder, "decode_cpu_64_vs_128_delta.csv")
        for threads in (64, ALL_CORES)
    ]


def best_threads(folder: str) -> dict[int, int]:
    """n -> the thread count that was fastest for forward."""
    return {int(row["n"]): int(row["best_threads"]) for row in rows(folder, "forward_cpu_best_threads_delta.csv")}


def forward_figures(folder: str) -> list[Figure]:
    """Forward on one thread, and two ratios at the best thread count."""
    found = []
    for row in rows(folder, "forward_cpu_best_threads_delta.csv"):
        one, best, every = (Call("forward", int(row["n"]), t) for t in (1, int(row["best_threads"]), ALL_CORES))
        found.append(Figure(one, None, float(row["seconds_1_thread"])))
        found.append(Figure(one, best, float(row["speedup_at_best_vs_1_thread"])))
        if every != best:
            found.append(Figure(every, best, float(row["slowdown_of_128_threads_vs_best"])))
    return found


def fused_figures(folder: str) -> list[Figure]:
    """Both ways of going forward and backward, over n with all cores and over threads at n = 4096."""
    found = []
    for row in rows(folder, "fused_vs_naive_cpu_128threads_delta.csv"):
        found += [Figure(Call(law, int(row["n"]), ALL_CORES), None, float(row[f"{law}_seconds"])) for law in LAWS]
    for row in rows(folder, "fused_vs_naive_cpu_n4096_delta.csv"):
        found += [Figure(Call(law, 4096, int(row["threads"])), None, float(row[f"{law}_seconds"])) for law in LAWS]
    return found


LAWS = ("naive", "fused")


def figures(folder: str) -> list[Figure]:
    """Every CPU figure that is a time or a ratio."""
    return [*decode_figures(folder), *forward_figures(folder), *fused_figures(folder)]


# --- what the model says ---


def quiet_s(model: Model, call: Call) -> float:
    """Seconds of a call that nobody disturbs: warm for decode, the first of its team for the others."""
    place = published_place(call.threads)
    work = work_s(model, Traits(), call.law, call.n, place)
    if call.law == "decode":
        return work + fork_s(model, Traits(), None, place)
    return work + spawn_s(model, call.law, call.threads)


def told(model: Model, figure: Figure, slices: int) -> float:
    """The model's figure when the call lost so many slices."""
    seconds = quiet_s(model, figure.call) + slices * model.slice_ms * 1e-3
    return seconds / quiet_s(model, figure.over) if figure.over else seconds


def slices_of(model: Model, figure: Figure) -> int:
    """How many slices a call lost: four for decode on all cores, else what explains a single shot on all cores best."""
    if figure.call.law == "decode":
        return DECODE_SLICES * (figure.call.threads == ALL_CORES and figure.call.n <= LAST_STALLED)
    long = figure.over is None and model.slice_ms * 1e-3 < LEAST_SLICE_SHARE * figure.value
    if long or figure.call.threads != ALL_CORES:
        return 0
    return min(range(MOST_SLICES + 1), key=lambda k: abs(math.log(told(model, figure, k) / figure.value)))


def errors(model: Model, found: Sequence[Figure], slices: Sequence[int]) -> np.ndarray:
    """The model over the paper, less one."""
    pairs = zip(found, slices, strict=True)
    return np.array([told(model, figure, count) / figure.value - 1 for figure, count in pairs])


def misplaced(model: Model, best: Mapping[int, int]) -> list[float]:
    """Logarithms of how much slower the best thread counts of forward are than half and twice as many, 0 if faster.

    All cores count with what an intruder takes there where they are not the best themselves, so not at all.
    """
    found = []
    for n, threads in best.items():
        own = quiet_s(model, Call("forward", n, threads))
        others = [t for t in (threads // 2, threads * 2) if 1 <= t < ALL_CORES]
        rest = [math.log(own / quiet_s(model, Call("forward", n, t))) + BEST_BY for t in others]
        found += [max(0.0, late) for late in rest]
    return found


def fit(folder: str) -> Model:
    """The model that comes nearest to the figures; deterministic."""
    from scipy.optimize import least_squares

    found, best, at = figures(folder), best_threads(folder), np.log(START)
    for power in POWERS:
        slices = [slices_of(Model(*np.exp(at)), figure) for figure in found]

        def residuals(at: np.ndarray, power: int = power, slices: Sequence[int] = slices) -> np.ndarray:
            model = Model(*np.exp(at))
            error = errors(model, found, slices)
            near = np.minimum(np.abs(error) / BAR, FAR) ** (power / 2) if power else np.abs(np.log1p(error))
            return np.array([*(np.sign(error) * near), *(BEST_WEIGHT * late for late in misplaced(model, best))])

        at = least_squares(residuals, at, max_nfev=80).x
    return Model(*(float(value) for value in np.exp(at)))


def sheet(model: Model, found: Sequence[Figure]) -> list[str]:
    """A line a figure: paper, model, error, slices."""
    slices = [slices_of(model, figure) for figure in found]
    lines = []
    for figure, count, error in zip(found, slices, errors(model, found, slices), strict=True):
        over = f"/ {figure.over.threads} threads" if figure.over else ""
        what = f"{figure.call.law:8}{figure.call.n:8}{figure.call.threads:5} {over:13}"
        lines.append(f"{what}{figure.value:12.6f}{told(model, figure, count):12.6f}{error:+8.1%}{count:3}")
    return lines


if __name__ == "__main__":
    best = fit(sys.argv[1])
    sys.stdout.write("\n".join([str(best), *sheet(best, figures(sys.argv[1]))]) + "\n")
