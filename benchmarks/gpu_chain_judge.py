"""What the rows of the part `chain` say: times, ratios with intervals, steps, crossings, beside the published figures.

Nothing is measured here. Published figures: the study's sections 4.3 to 4.7 and 5.3, as the project has them in
advisor/validate/published/gpu_findings.csv.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpu_chain import LONG_NS
from gpu_judge import FUSED_N, Said, banded, crossing_of
from gpu_rows import Row
from gpu_text import ratio_text, table
from kernel_rows import Ratio, ratio, shown_number, shown_time

MAPPINGS = ("packed", "one_lane", "lane")
"""A thread a row, 128 rows a block; one active lane a warp; a block a row or column with its lanes on the contiguous
index."""

Name = tuple[str, str]
"""Kernel and variant."""


class Step(NamedTuple):
    """A ratio that is followed over n.

    Attributes:
        title: what is divided by what.
        over, under: variants whose times are added up.
        expected: what was published of it: slower, faster, or halves (HALF at most) at every n, turns (faster at small
            n, slower at large); empty: nothing.
        published: the figures.
    """

    title: str
    over: tuple[Name, ...]
    under: tuple[Name, ...]
    expected: str = ""
    published: str = ""


HALF = 0.6
"""A step that was published to halve the time does so up to here."""

TWO = "A100 1.14 at n = 64, 1.84 at 4096; H200 1.34 to 1.53"
ONE = "A100 0.757 at n = 64, 0.517 at 8192; H200 0.920 and 0.401"
GK_BACKWARD = "A100 0.56 to 0.81"
GK_FUSED = "A100 0.79 at n = 2048, 1.04 at 4096, 1.32 at 8192"


def _of_mapping(mapping: str) -> list[Step]:
    two, one, none = (("fused", f"fused_{scheme}_{mapping}") for scheme in ("two_atomics", "gv_columns", "no_atomic"))
    naive, pair = ("fused", f"pair_{mapping}"), ("fused", f"pair_no_atomic_{mapping}")
    kept, removed = (("backward", f"{scheme}_{mapping}") for scheme in ("gk_atomic", "no_atomic"))
    return [
        Step(f"fused, two atomics / naive, {mapping}", (two,), (naive,), "slower", TWO),
        Step(f"fused, GV's atomic removed / naive, {mapping}", (one,), (naive,), "faster", ONE),
        Step(f"fused, no atomic / naive, {mapping}", (none,), (naive,)),
        Step(f"fused, no atomic / naive without atomics, {mapping}", (none,), (pair,)),
        Step(f"GV's step in fused, {mapping}", (one,), (two,), "halves", "2 to 2.5 times faster"),
        Step(f"GK's step in fused, {mapping}", (none,), (one,), "turns", GK_FUSED),
        Step(f"GK's step in backward, {mapping}", (removed,), (kept,), "faster", GK_BACKWARD),
    ]


def _backward(name: str) -> Name:
    return "backward", name


STEPS = (
    *(step for mapping in MAPPINGS for step in _of_mapping(mapping)),
    *(
        Step(f"A recomputed / persisted, {scheme}, packed", (("fused", f"fused_{scheme}_recomputed_packed"),),
             (("fused", f"fused_{scheme}_packed"),))
        for scheme in ("two_atomics", "gv_columns", "no_atomic")
    ),
    *(
        Step(f"GK's atomic, {name} / packed", (_backward(f"gk_atomic_{name}"),), (_backward("gk_atomic_packed"),))
        for name in ("rotated", "warp_reduced", "lane")
    ),
    Step("naive / forward + backward, packed", (("fused", "pair_packed"),),
         (("forward", "packed"), _backward("gk_atomic_packed"))),
    Step("naive / forward + backward, lane", (("fused", "pair_lane"),),
         (("forward", "lane_global"), _backward("gk_atomic_lane"))),
    Step("forward, scores in global memory / in shared memory, lane", (("forward", "lane_global"),),
         (("forward", "lane_shared"),)),
)  # fmt: skip


class Point(NamedTuple):
    """A step at one n, and of how many rounds."""

    n: int
    ratio: Ratio
    rounds: int


class Curve(NamedTuple):
    """A step over n, where it crosses 1, and whether it goes as published: yes, in part, no; empty: nothing was."""

    step: Step
    points: tuple[Point, ...]
    crossings: tuple[float, ...]
    verdict: str


# --- judging ---


def samples_of(row: Row) -> dict[Name, list[float]]:
    """Kernel and variant -> its samples in ns."""
    return {(one["kernel"], one["variant"]): row.data["samples"][one["name"]] for one in row.data["variants"]}


def added(samples: dict[Name, list[float]], names: Sequence[Name]) -> list[float] | None:
    """Times of some variants after one another, round by round; None where one has none."""
    found = [samples[name] for name in names if name in samples]
    return [sum(each) for each in zip(*found, strict=False)] if len(found) == len(names) else None


def point(row: Row, step: Step) -> Point | None:
    """A step in a row, from the rounds that all sides had; None where one side was not timed."""
    samples = samples_of(row)
    over, under = added(samples, step.over), added(samples, step.under)
    if over is None or under is None:
        return None
    rounds = min(len(over), len(under))
    return Point(row.key["n"], ratio("over", "under", over[:rounds], under[:rounds]), rounds)


def curves(rows: Iterable[Row]) -> list[Curve]:
    """Every step that has points."""
    own = sorted((row for row in rows if row.part == "chain" and not row.failed), key=lambda row: row.key["n"])
    found = []
    for step in STEPS:
        points = tuple(one for row in own if (one := point(row, step)))
        if points:
            at = crossing_of([(one.n, math.log(one.ratio.value)) for one in points])
            found.append(Curve(step, points, tuple(at), verdict(step, points)))
    return found


def verdict(step: Step, points: Sequence[Point]) -> str:
    """Whether a step goes as published: yes where it does at every n, in part where at some."""
    if not step.expected:
        return ""
    sides = [banded(one.ratio) for one in points]
    if step.expected == "turns":
        both = "faster" in sides and "slower" in sides
        turned = both and len(sides) - sides[::-1].index("faster") <= sides.index("slower")
        return "yes" if turned else "in part" if both else "no"
    halved = [one.ratio.high <= HALF for one in points]
    agree = sum(halved) if step.expected == "halves" else sides.count(step.expected)
    return "yes" if agree == len(sides) else "in part" if agree else "no"


def rivals(row: Row) -> tuple[tuple[str, tuple[Name, ...], Ratio], ...]:
    """The fastest own fused variant over each naive way: the fastest pair of one choice, and the fastest forward with
    the fastest backward after it.

    Returns:
        The fused variant, what it is compared with, their ratio.
    """
    samples = samples_of(row)
    fused, pair = (fastest(samples, "fused", paired) for paired in (False, True))
    parts = [name for kernel in ("forward", "backward") if (name := fastest(samples, kernel))]
    ways = [(pair,) if pair else (), tuple(parts) if len(parts) == 2 else ()]
    found = []
    for way in filter(None, ways if fused else ()):
        over, under = samples[fused], added(samples, way)  # type: ignore[index]
        rounds = min(len(over), len(under or ()))
        found.append((fused[1], way, ratio("fused", "naive", over[:rounds], under[:rounds])))  # type: ignore[index]
    return tuple(found)


def fastest(samples: dict[Name, list[float]], kernel: str, paired: bool = False) -> Name | None:
    """The fastest own variant of a kernel, of fused that of the naive pairs or of the others; None without one."""
    medians = {
        name: statistics.median(taken)
        for name, taken in samples.items()
        if name[0] == kernel and name[1].startswith("pair") == paired
    }
    return min(medians, key=medians.__getitem__, default=None)


def says(rows: Iterable[Row]) -> list[Said]:
    """Whether the fused kernel is judged slower than a naive way at any n from FUSED_N on."""
    met: dict[str, dict[int, bool]] = {}
    for row in rows:
        if row.part == "chain" and not row.failed and row.key["n"] >= FUSED_N:
            for _, way, found in rivals(row):
                what = "the own naive pair" if len(way) == 1 else "own forward, then own backward"
                met.setdefault(what, {})[row.key["n"]] = banded(found) != "slower"
    said = []
    for what, at in met.items():
        missed = ", ".join(str(n) for n, is_met in at.items() if not is_met)
        text = f"own fused not judged slower than {what} (float64, warm, {len(at)} n >= {FUSED_N})"
        said.append(Said(text + (f": not at n = {missed}" if missed else ""), not missed))
    return said


# --- showing ---


def lines(rows: Sequence[Row]) -> list[str]:
    """Times, the best of both ways, ratios, sentences."""
    own = sorted((row for row in rows if row.part == "chain" and not row.failed), key=lambda row: row.key["n"])
    found = curves(own)
    return [*times(own), *knobs(own), *duels(own), *ratios(own, found), *sentences(found)]


def times(rows: Sequence[Row]) -> list[str]:
    """The median time of every variant at every n, and the local exponent of its growth at the end."""
    sizes = [row.key["n"] for row in rows]
    names = dict.fromkeys(name for row in rows for name in samples_of(row))
    body = []
    for name in names:
        medians = {row.key["n"]: statistics.median(taken[name]) for row in rows if name in (taken := samples_of(row))}
        shown = [shown_time(medians[n]) if n in medians else "-" for n in sizes]
        body.append((*name, *shown, exponent(medians)))
    return table(("kernel", "variant", *(f"n = {n}" for n in sizes), "exponent"), body)


def exponent(medians: dict[int, float]) -> str:
    """The slope of log time over log n between the two largest n."""
    last = sorted(medians)[-2:]
    if len(last) < 2:
        return "-"
    low, high = last
    return f"{math.log(medians[high] / medians[low]) / math.log(high / low):.2f}"


def knobs(rows: Sequence[Row]) -> list[str]:
    """Which variants ran with the best of several knob sets, which with their defaults; rounds of the slow ones."""
    picked = {
        f"{one['kernel']} {one['variant']}" for row in rows for one in row.data["variants"] if one["knob_sets"] > 1
    }
    least = min((len(taken) for row in rows for taken in row.data["samples"].values()), default=0)
    said = f"Best of several knob sets at each n: {', '.join(sorted(picked)) or 'none'}; the others have one set each."
    said += f" Where the defaults take over {LONG_NS / 1e6:.0f} ms, of these and the sets that a tuning saw fastest."
    left = {f"{name}: {why}" for row in rows for name, why in row.data["left_out"].items()}
    text = [said, f"Rounds: {least} at least, where a call is long.", *sorted(f"- {one}" for one in left), ""]
    return text if rows else []


def duels(rows: Sequence[Row]) -> list[str]:
    """The fastest own fused variant beside the naive ways."""
    body = []
    for row in rows:
        samples = samples_of(row)
        for fused, way, found in rivals(row):
            over, under = samples["fused", fused], added(samples, way) or []
            medians = [shown_time(statistics.median(taken)) for taken in (over, under)]
            named = " + ".join(name for _, name in way)
            body.append((str(row.key["n"]), fused, medians[0], named, medians[1], ratio_text(found), banded(found)))
    return table(("n", "best own fused", "time", "best own naive", "time", "fused / naive", "verdict"), body)


def ratios(rows: Sequence[Row], found: Sequence[Curve]) -> list[str]:
    """Every step at every n."""
    sizes = [row.key["n"] for row in rows]
    body = []
    for one in found:
        at = {each.n: ratio_text(each.ratio) for each in one.points}
        body.append((one.step.title, *(at.get(n, "-") for n in sizes)))
    return table(("ratio", *(f"n = {n}" for n in sizes)), body)


def sentences(found: Sequence[Curve]) -> list[str]:
    """What became of every step: range, verdicts, crossings, beside what was published."""
    out: list[str] = []
    for one in found:
        values = [each.ratio.value for each in one.points]
        sides = [banded(each.ratio) for each in one.points]
        counts = ", ".join(f"{side} at {sides.count(side)}" for side in ("faster", "tie", "slower") if side in sides)
        span = f"{shown_number(min(values))} to {shown_number(max(values))}"
        said = f"- {one.step.title}: {span}; {counts} of {len(sides)} n"
        said += f"; 1 is crossed at n = {', '.join(f'{n:.0f}' for n in one.crossings)}" if one.crossings else ""
        said += f". Published: {one.step.published or one.step.expected}" if one.step.expected else ""
        out.append(said + (f"; reproduced: {one.verdict}." if one.verdict else "."))
    return [*out, ""] if out else []


def plain(found: Sequence[Curve]) -> list[dict[str, Any]]:
    """Curves as plain data."""
    return [
        {
            "title": one.step.title,
            "published": one.step.published,
            "points": [{"n": each.n, "rounds": each.rounds, "ratio": each.ratio[2:]} for each in one.points],
            "crossings": list(one.crossings),
            "reproduced": one.verdict,
        }
        for one in found
    ]
