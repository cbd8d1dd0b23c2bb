"""The figures of a report as data for Plotly: traces and axes. The page sets colours that depend on light and dark.

All text that came from a file is escaped: Plotly reads a little HTML in names and labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from advisor.policy.launch import duration, process_words
from advisor.records import Choice
from advisor.report.digest import Dot, HeldOutAt, Step
from advisor.report.traffic import Moved, ReadFloor
from advisor.show import choice_words
from advisor.words import many

CHOSEN, DEFAULT, BUSY, FLOOR = "#d6278a", "#8a8f98", "#e07b00", "#2a9d55"
"""Colours of the chosen path, the default choice, times beside a busy neighbour and rates read; seen on white and on
near black alike."""

Json = dict[str, Any]


class Figure(NamedTuple):
    """One figure: an id of the page, its title, a sentence on how to read it, traces and axes for Plotly."""

    name: str
    title: str
    about: str
    data: list[Json]
    layout: Json


def shade(index: int, count: int) -> str:
    """Colour of one of several in an order, from blue over green to red, none too light or dark to be seen."""
    return f"hsl({round(225 - 215 * index / max(1, count - 1))},65%,46%)"


def _log_axis(title: str, ticks: Sequence[float] = (), unit: str = "") -> Json:
    """A logarithmic axis; `ticks` are written out where there are few of them."""
    axis: Json = {"title": {"text": title}, "type": "log", "ticksuffix": unit}
    if 0 < len(ticks) <= MOST_TICKS:
        axis |= {"tickvals": list(ticks), "ticktext": [short(tick) for tick in ticks]}
    return axis


MOST_TICKS = 12


def short(value: float) -> str:
    """A size as people write it: 4096 is 4k, 3000 is 3000."""
    for unit, size in (("m", 1 << 20), ("k", 1 << 10)):
        if value >= size and value % size == 0:
            return f"{int(value) // size}{unit}"
    return f"{value:g}"


def choice_lines(choice: Choice) -> str:
    """A choice in a few lines for a label, escaped."""
    team, process = choice.team, choice.process
    words = [choice_words(choice)]
    if team is not None:
        words.append(f"{many(team.threads, 'thread')}, {team.placement or 'the array as it stands'}")
    if process is not None:
        words.append(process_words(process))
    return "<br>".join(map(escape, words))


# --- time ---


def over_threads(name: str, dots: Sequence[Dot], steps: Sequence[Step]) -> Figure:
    """Time over threads, a line an n, the chosen path over them: the paper's figure 3.

    Source: Mullin and Hains, figure 3.
    """
    dots = [dot for dot in dots if isinstance(dot.at, int)]  # a log may hold choices without a team
    sizes = sorted({dot.n for dot in dots})
    data = []
    for i, n in enumerate(sizes):
        own = [dot for dot in dots if dot.n == n]
        data.append(_line(f"n = {n}", [dot.at for dot in own], own, shade(i, len(sizes))))
    timed = [(step, step.choice.team.threads) for step in steps if step.ns is not None and step.choice.team]
    if timed:
        data.append(
            {
                "name": "chosen",
                "x": [threads for _, threads in timed],
                "y": _seconds(step.ns for step, _ in timed if step.ns),
                "text": [_step_text(step) for step, _ in timed],
                **_chosen_style(),
            }
        )
    threads = sorted({int(dot.at) for dot in dots} | {count for _, count in timed})
    layout = {"xaxis": _log_axis("threads", threads), "yaxis": _log_axis("time of a call", unit="s")}
    about = (
        "The fastest choice with so many threads at each n; filled: raced, open: a first look. The dotted line is what "
        "the table chooses."
    )
    return Figure(name, "Time over threads", about, data, layout)


def _line(name: str, x: Sequence[int | str], dots: Sequence[Dot], colour: str) -> Json:
    """Times of dots over `x`, which belongs to them."""
    return {
        "name": escape(name),
        "x": list(x),
        "y": _seconds(dot.ns for dot in dots),
        "text": [f"n = {dot.n}, {escape(duration(dot.ns))}<br>{choice_lines(dot.choice)}" for dot in dots],
        "hoverinfo": "text",
        "mode": "lines+markers",
        "line": {"color": colour, "width": 1.5},
        "marker": {"size": 7, "color": colour, "symbol": ["circle" if dot.raced else "circle-open" for dot in dots]},
    }


def over_n(name: str, dots: Sequence[Dot], steps: Sequence[Step]) -> Figure:
    """Time over n, a line a variant, the chosen path over them: what a GPU has in the place of threads."""
    variants = sorted({str(dot.at) for dot in dots})
    data = []
    for i, variant in enumerate(variants):
        own = [dot for dot in dots if str(dot.at) == variant]
        data.append(_line(variant, [dot.n for dot in own], own, shade(i, len(variants))))
    timed = [step for step in steps if step.ns is not None]
    data.append({"name": "chosen", **_path(timed), **_chosen_style()})
    layout = {"xaxis": _log_axis("n", _sizes(steps)), "yaxis": _log_axis("time of a call", unit="s")}
    about = "The fastest choice of each variant; filled: raced, open: a first look. Dotted: what the table chooses."
    return Figure(name, "Time over n", about, data, layout)


def _chosen_style() -> Json:
    return {
        "hoverinfo": "text",
        "mode": "lines+markers",
        "line": {"color": CHOSEN, "width": 3, "dash": "dot"},
        "marker": {"size": 11, "color": CHOSEN, "symbol": "diamond"},
    }


def _path(steps: Sequence[Step]) -> Json:
    return {
        "x": [step.n for step in steps],
        "y": _seconds(step.ns for step in steps if step.ns),
        "text": [_step_text(step) for step in steps],
    }


def _step_text(step: Step) -> str:
    time = ", ".join(["no time known" if step.ns is None else duration(step.ns), *step.doubts])
    return f"chosen at n = {step.n}, {escape(time)}<br>{choice_lines(step.choice)}"


# --- fragility ---


def beside(name: str, steps: Sequence[Step]) -> Figure:
    """The chosen path on a quiet machine, beside one busy neighbour, and the default choice."""
    quiet = [step for step in steps if step.ns is not None]
    stolen = [(step, step.point.stolen) for step in quiet if step.point and step.point.stolen]
    default = [(step, step.default_ns) for step in steps if step.default_ns is not None]
    data: list[Json] = [{"name": "chosen, quiet", **_path(quiet), **_chosen_style()}]
    if default:
        times = [ns for _, ns in default if ns is not None]
        data.append(_plain("default choice, quiet", [step.n for step, _ in default], times, DEFAULT))
    if stolen:
        means = [summary.mean_ns for _, summary in stolen if summary]
        data.append(_plain("chosen, beside a busy neighbour", [step.n for step, _ in stolen], means, BUSY))
    layout = {"xaxis": _log_axis("n", _sizes(steps)), "yaxis": _log_axis("time of a call", unit="s")}
    about = (
        "25th percentile on a quiet machine; the mean beside one process that keeps a core of the team busy, which is "
        "what throughput sees."
        if stolen
        else "Beside a busy neighbour nothing was measured."
    )
    return Figure(name, "Quiet, and beside a busy neighbour", about, data, layout)


def _plain(name: str, sizes: Sequence[int], times_ns: Sequence[float], colour: str) -> Json:
    return {
        "name": name,
        "x": list(sizes),
        "y": _seconds(times_ns),
        "text": [f"{name}, n = {n}: {duration(ns)}" for n, ns in zip(sizes, times_ns, strict=True)],
        "hoverinfo": "text",
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2},
        "marker": {"size": 8, "color": colour},
    }


# --- regret ---


def regret(name: str, steps: Sequence[Step], held: Sequence[HeldOutAt]) -> Figure:
    """Per cent above the best known time: at tuned n from the final race, at held-out n from races of their own."""
    tuned = [(step.n, step.regret) for step in steps if step.regret is not None]
    data = [
        _regret_trace("tuned n", [(n, one) for n, one in tuned if one is not None], CHOSEN, "diamond"),
        _regret_trace("held out", [(one.n, one.regret) for one in held], BUSY, "square"),
    ]
    sizes = sorted({*_sizes(steps), *(one.n for one in held)})
    layout = {
        "xaxis": _log_axis("n", sizes if len(sizes) <= MOST_TICKS else _sizes(steps)),
        "yaxis": {
            "title": {"text": "above the best known time"},
            "ticksuffix": " %",
            "rangemode": "tozero",
            "exponentformat": "none",
        },
    }
    about = (
        "Timed anew in one race, with samples that did not choose the winner. Held out: sizes that were never tuned."
    )
    return Figure(name, "Regret", about, [trace for trace in data if trace["x"]], layout)


def _regret_trace(name: str, found: Sequence[tuple[int, float]], colour: str, symbol: str) -> Json:
    percent = [100 * (one - 1) for _, one in found]
    return {
        "name": name,
        "x": [n for n, _ in found],
        "y": percent,
        "text": [f"{name}, n = {n}: {one:.1f} %" for (n, _), one in zip(found, percent, strict=True)],
        "hoverinfo": "text",
        "mode": "markers",
        "marker": {"size": 11, "color": colour, "symbol": symbol},
    }


# --- traffic ---


def rates(name: str, found: Sequence[Moved], floors: Sequence[ReadFloor]) -> Figure:
    """Predicted bytes over measured time, beside the rates at which the machine reads."""
    known = [(one.n, one.gb_per_s) for one in found if one.gb_per_s is not None]
    sizes = [n for n, _ in known]
    data: list[Json] = [
        {
            "name": "achieved",
            "x": sizes,
            "y": [rate for _, rate in known],
            "text": [f"n = {n}: {rate:.3g} GB/s" for n, rate in known],
            "hoverinfo": "text",
            "mode": "lines+markers",
            "line": {"color": CHOSEN, "width": 2},
            "marker": {"size": 8, "color": CHOSEN},
        }
    ]
    for floor in floors if sizes else ():
        data.append(
            {
                "name": f"read floor, {escape(floor.level)}",
                "x": [min(sizes), max(sizes)],
                "y": [floor.gb_per_s] * 2,
                "mode": "lines",
                "line": {"color": FLOOR, "width": 2, "dash": "dash" if floor.level == "memory" else "dot"},
                "hoverinfo": "name+y",
            }
        )
    layout = {"xaxis": _log_axis("n", sizes), "yaxis": _log_axis("GB/s (10^9 bytes)")}
    about = "The least that the definition moves, predicted, over the measured time of the chosen path." + (
        "" if floors else " No read floor was measured: `advisor probe --bench` does."
    )
    return Figure(name, "Predicted traffic over measured time", about, data, layout)


def _sizes(steps: Iterable[Step]) -> list[int]:
    return [step.n for step in steps]


def _seconds(times_ns: Iterable[float]) -> list[float]:
    """Times in seconds, six digits: a page holds thousands."""
    return [float(f"{ns * 1e-9:.6g}") for ns in times_ns]
