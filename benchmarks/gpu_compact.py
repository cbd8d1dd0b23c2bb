"""The races of the chain's cells, a line a cell: some fifty cells at four to nine n would fill pages otherwise.

All times, names and intervals are in the object that `show --json` prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from gpu_cells import CELLS
from gpu_judge import Raced, banded
from gpu_text import ratio_text, table
from kernel_rows import shown_number

Cellular = dict[str, dict[int, Raced]]
"""Label -> n -> its race."""


def by_cell(found: Sequence[Raced]) -> Cellular:
    """The races of all kernels but decode."""
    cells: Cellular = {}
    for one in found:
        if CELLS[one.shape].kernel != "decode":
            cells.setdefault(one.shape, {})[one.n] = one
    return cells


def lines(found: Sequence[Raced]) -> list[str]:
    """What races say: the table beside libraries, own variants beside libraries, fused beside naive."""
    cells = by_cell(found)
    if not cells:
        return []
    said = "us over us = ratio, of the best library call; bold where judged slower, `own` where no library ran it."
    return [
        "The table's choice beside the best library call, cells that raced:",
        "",
        *grid(cells, beside_library, ("choices of the table", choices)),
        said,
        "",
        *grid({k: v for k, v in cells.items() if any(one.ratio("own", "library") for one in v.values())}, own),
        "The best own variant over the best library call; over the backend of a bar in brackets, bold where missed.",
        "",
        *grid({k: v for k, v in cells.items() if any(one.ratio("fused", "naive") for one in v.values())}, fused),
        "The best own fused kernel over the best own naive pair, with the interval; bold where judged slower.",
        "",
    ]


def grid(
    cells: Cellular, entry: Callable[[Raced], str], last: tuple[str, Callable[[Sequence[Raced]], str]] | None = None
) -> list[str]:
    """A line a cell and a column an n."""
    sizes = sorted({n for each in cells.values() for n in each})
    body = [
        (
            label,
            *(entry(each[n]) if n in each else "" for n in sizes),
            *([last[1](list(each.values()))] if last else []),
        )
        for label, each in cells.items()
    ]
    return table(("cell", *(f"n = {n}" for n in sizes), *([last[0]] if last else [])), body)


def beside_library(one: Raced) -> str:
    """Times of the table's choice and the best library, and their ratio."""
    choice, library, between = one.names.get("table"), one.names.get("library"), one.ratio("table", "library")
    if choice is None:
        return "no table"
    if library is None or between is None:
        return f"{micro(one.median_ns[choice])} own"
    text = f"{micro(one.median_ns[choice])} / {micro(one.median_ns[library])} = {shown_number(between.value)}"
    return f"**{text}**" if one.verdict == "slower" else text


def micro(time_ns: float) -> str:
    """Microseconds with three digits."""
    value = time_ns / 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def choices(found: Sequence[Raced]) -> str:
    """The variants that a table names, the most frequent first."""
    names = Counter(one.names["table"].split()[0] for one in found if "table" in one.names)
    return ", ".join(f"{name} {count}" for name, count in names.most_common())


def own(one: Raced) -> str:
    """The best own variant over the best library, and over the backend of a bar."""
    found, bar = one.ratio("own", "library"), next(iter(one.bars), None)
    if found is None:
        return "-"
    if bar is None:
        return shown_number(found.value)
    against = one.ratio("own", bar.under)
    text = shown_number(found.value)
    if bar.under != "library" and against:
        text += f" ({bar.under} {shown_number(against.value)})"
    return text if bar.met else f"**{text}**"


def fused(one: Raced) -> str:
    """The best own fused kernel over the best own naive pair."""
    found = one.ratio("fused", "naive")
    if found is None:
        return "-"
    return f"**{ratio_text(found)}**" if banded(found) == "slower" else ratio_text(found)
