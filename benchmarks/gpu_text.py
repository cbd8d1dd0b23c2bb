"""How benchmarks/gpu.py writes figures: Markdown tables, ratios with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernel_rows import Ratio, shown_number


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; nothing where it has no rows."""
    body = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body, ""] if body else []


def ratio_text(found: Ratio | None) -> str:
    """A ratio with its interval; a dash for none."""
    if found is None:
        return "-"
    value, low, high = (shown_number(one) for one in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"
