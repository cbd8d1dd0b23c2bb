"""What the rows of benchmarks/gpu.py say: ratios with intervals, verdicts, bars. Nothing is measured here."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpu_cells import CELLS
from gpu_rows import Row
from kernel_rows import Bar, Ratio, bars, ratio
from tune import MEAN, WORST, geomean

from advisor.search.samples import p25

BAND = 0.015
"""A table's choice is slower than a library only from here on: the landing bar of docs/design.md."""

LEAST_ROUNDS = 20
"""A race of fewer rounds judges nothing."""

CUDNN_BAR = 1.05
FLOOR_BARS = ((262144, 1.15), (65536, 1.45))
"""From n on, the most that an own variant's float32 time over the read floor may be. Source: the first measurements."""

FORWARD_BARS = {
    ("bfloat16", 64): ("library", 1.18),
    ("bfloat16", 128): ("library", 1.35),
    ("float32", 64): ("efficient", 1.0),
    ("float64", 64): ("math", 0.7),
}
"""(dtype, head_dim) -> backend and the most that an own forward's time over it may be. Source: as above."""

FUSED_N = 512
"""From this n on the best own fused kernel in float64 is not judged slower than the best own naive pair."""

SHORT_N, SHORT_NS = 16384, 10_000.0
"""Below this n an own variant's float32 time may be at most so long. Source: as above."""

SHARE_BAR = 0.1
"""Of the exhaustive pass's time a search may take at most this."""


class Raced(NamedTuple):
    """One race, judged.

    Attributes:
        median_ns: name of an entrant -> median of its samples.
        verdict: of the table's choice against the best library: slower, tie, faster; empty where it cannot be judged.
        ratios: those of PAIRS with both sides.
        names: role -> name of the entrant that plays it.
        peak: own's time over that of the same bytes at the best rate any floor reached; None without a floor.
    """

    shape: str
    n: int
    rounds: int
    median_ns: dict[str, float]
    names: dict[str, str]
    ratios: tuple[Ratio, ...]
    verdict: str
    bars: tuple[Bar, ...]
    peak: float | None = None

    def ratio(self, over: str, under: str) -> Ratio | None:
        """A ratio, None where one side did not race."""
        return next((one for one in self.ratios if (one.over, one.under) == (over, under)), None)


class Said(NamedTuple):
    """One sentence with a bar: met, missed, or None where nothing was measured that it could be judged by."""

    text: str
    met: bool | None


# --- race ---


def banded(found: Ratio, band: float = BAND) -> str:
    """slower where the whole interval lies above the band around 1, faster where below, else tie."""
    return "slower" if found.low > 1 + band else "faster" if found.high < 1 / (1 + band) else "tie"


def roles(entrants: Sequence[dict[str, Any]], samples: dict[str, list[float]]) -> dict[str, str]:
    """Role -> the entrant that plays it, of several the fastest. `own`: whatever is no library's and no floor."""
    playing: dict[str, list[str]] = {}
    for one in entrants:
        for role in {*one["roles"], one["kind"]}:
            playing.setdefault(role, []).append(one["name"])
        for backend in BACKENDS:
            if one["kind"] == "library" and backend in one["choice"]["build"]["variant"]:
                playing.setdefault(backend, []).append(one["name"])
    return {role: min(names, key=lambda name: p25(samples[name])) for role, names in playing.items()}


BACKENDS = ("cudnn", "efficient", "math")
"""Libraries' backends that a bar names: roles of their own."""

PAIRS = (
    ("table", "library"),
    ("table", "own"),
    ("own", "library"),
    *(("own", backend) for backend in BACKENDS),
    ("own", "floor"),
    ("one warp", "more warps"),
    ("fused", "naive"),
)


def limits(shape: str, n: int) -> dict[tuple[str, str], float]:
    """The bars of ratios that hold for a row."""
    cell = CELLS[shape]
    if cell.kernel == "forward":
        found = FORWARD_BARS.get((cell.dtype, cell.shape["head_dim"]))
        return {("own", found[0]): found[1]} if found else {}
    if cell.kernel != "decode":
        return {}
    if shape != "paper":
        return {("own", "cudnn"): CUDNN_BAR}
    limit = next((limit for least, limit in FLOOR_BARS if n >= least), None)
    return {} if limit is None else {("own", "floor"): limit}


def raced(row: Row, peak_rate: float | None = None) -> Raced:
    """A row of the part race, judged.

    Args:
        row: as it was measured.
        peak_rate: bytes per ns that a floor reached at best, at whatever n.
    """
    samples, shape, n = row.data["samples"], row.key["shape"], row.key["n"]
    names = roles(row.data["entrants"], samples)
    found = tuple(
        ratio(over, under, samples[names[over]], samples[names[under]])
        for over, under in PAIRS
        if over in names and under in names
    )
    enough = row.data["rounds"] >= LEAST_ROUNDS
    against = next((one for one in found if (one.over, one.under) == ("table", "library")), None)
    own_ns = p25(samples[names["own"]])
    return Raced(
        shape,
        n,
        row.data["rounds"],
        {name: statistics.median(taken) for name, taken in samples.items()},
        names,
        found,
        banded(against) if against and enough else "",
        tuple([*bars(list(found), limits(shape, n)), *short(shape, n, own_ns)] if enough else []),
        own_ns * peak_rate / row.data["cache_bytes"] if peak_rate else None,
    )


def short(shape: str, n: int, own_ns: float) -> list[Bar]:
    """The bar in microseconds of the short float32 rows."""
    if shape != "paper" or n >= SHORT_N:
        return []
    return [Bar("own", "10 us", 1.0, own_ns <= SHORT_NS)]


def peak_rate(rows: Iterable[Row]) -> float | None:
    """Bytes per ns of the fastest floor over all rows; None where none raced."""
    rates = [
        row.data["cache_bytes"] / p25(row.data["samples"][one["name"]])
        for row in rows
        for one in row.data.get("entrants", ())
        if one["kind"] == "floor"
    ]
    return max(rates, default=None)


def races(rows: Iterable[Row]) -> list[Raced]:
    """All races, by shape and n."""
    own = [row for row in rows if row.part == "race" and not row.failed]
    best = peak_rate(own)
    order = list(CELLS)
    return sorted((raced(row, best) for row in own), key=lambda one: (order.index(one.shape), one.n))


def race_says(found: Sequence[Raced]) -> list[Said]:
    """The sentences that the races allow."""
    if not found:
        return [Said("no race was run", None)]
    judged = [one for one in found if one.verdict]
    lost = [f"{one.shape} n={one.n}" for one in judged if one.verdict == "slower"]
    text = f"the table's choice is slower than the best library at {len(lost)} of {len(judged)} rows"
    said = [Said(text + (f": {', '.join(lost)}" if lost else ""), not lost)] if judged else []
    open_ = [f"{one.shape} n={one.n}" for one in found if not one.verdict]
    said += [Said(f"no table, no library or too few rounds at {', '.join(open_)}", None)] if open_ else []
    for text, of in barred(found).items():
        missed = [f"{one.shape} n={one.n}" for one, met in of if not met]
        tail = f": not at {', '.join(missed)}" if missed else ""
        said.append(Said(f"{text}: bar met at {len(of) - len(missed)} of {len(of)} rows{tail}", not missed))
    return said


WHAT = {
    "cudnn": "own over cuDNN",
    "floor": "own over the read floor",
    "10 us": "own in 10 us",
    "library": "own forward over the best backend",
    "efficient": "own forward over the efficient backend",
    "math": "own forward over SDPA math",
}


def barred(found: Sequence[Raced]) -> dict[str, list[tuple[Raced, bool]]]:
    """Sentence -> the rows that it is about, each with whether its bar is met."""
    rows: dict[str, list[tuple[Raced, bool]]] = {}
    for one in found:
        for bar in one.bars:
            cell = CELLS[one.shape]
            about = (
                "" if cell.kernel == "decode" else f" ({cell.dtype}, head_dim {cell.shape['head_dim']}, {bar.limit})"
            )
            rows.setdefault(WHAT[bar.under] + about, []).append((one, bar.met))
    for one in found:
        cell, against = CELLS[one.shape], one.ratio("fused", "naive")
        enough = one.rounds >= LEAST_ROUNDS and one.n >= FUSED_N
        if (cell.kernel, cell.dtype) == ("fused", "float64") and enough and against:
            text = f"own fused not judged slower than the own naive pair (float64, n >= {FUSED_N})"
            rows.setdefault(text, []).append((one, banded(against) != "slower"))
    return rows


# --- regret ---


def regret_says(rows: Iterable[Row]) -> list[Said]:
    """Worst, geometric mean, and the share of the exhaustive time at every n."""
    own = [row for row in rows if row.part == "regret" and not row.failed]
    known = [row.data["regret"]["ours"][0] for row in own if row.data["regret"].get("ours")]
    if not known:
        return [Said("no regret was measured", None)]
    worst, mean = max(known), geomean(known)
    said = [
        Said(f"worst regret {worst:.3f}, bar {WORST}", worst <= WORST),
        Said(f"geometric mean {mean:.3f}, bar {MEAN}", mean <= MEAN),
    ]
    for row in own:
        share, whole = row.data["share"], row.data["exhaustive"]["whole"]
        if share is not None:
            head, most = f"{row.key['shape']} n={row.key['n']}", "" if whole else "at most "
            text = f"{head}: {most}{share:.3f} of the exhaustive time, bar {SHARE_BAR}"
            said.append(Said(text, share <= SHARE_BAR))
    return said


# --- where one warp gives way to more ---


class Border(NamedTuple):
    """Where a table changes from one number of warps a block to another: last n of the one, first n of the other."""

    shape: str
    low: int
    high: int
    before: int | None
    after: int | None


def crossing(found: Sequence[Raced], shape: str) -> list[float]:
    """The n at which one warp and more warps take equally long."""
    pair = ("one warp", "more warps")
    return crossing_of([(one.n, math.log(r.value)) for one in found if one.shape == shape and (r := one.ratio(*pair))])


def crossing_of(curve: Sequence[tuple[int, float]]) -> list[float]:
    """Where a curve of (n, log ratio) crosses 0: log-linear between the points on its two sides."""
    return [
        math.exp(math.log(a) + (math.log(b) - math.log(a)) * -at_a / (at_b - at_a))
        for (a, at_a), (b, at_b) in itertools.pairwise(curve)
        if at_a * at_b < 0
    ]


def borders(shape: str, rows: Sequence[tuple[int, int, int | None]]) -> list[Border]:
    """Where the number of warps changes between neighbouring rows of a table, each (low, high, warps)."""
    return [
        Border(shape, one[1], other[0], one[2], other[2])
        for one, other in itertools.pairwise(rows)
        if one[2] != other[2]
    ]
