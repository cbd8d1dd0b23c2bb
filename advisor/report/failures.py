"""What failed in a log and why, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from advisor.records import STATUSES
from advisor.report.digest import ODD, size

MOST = 60
"""Kinds of failure that a report shows; a broken machine has thousands that nobody reads."""

LONGEST = 300
"""Characters of a reason: a compiler can say a page."""


class Failure(NamedTuple):
    """Trials of one variant that ended alike; `sizes`: the n of them."""

    kernel: str
    variant: str
    status: str
    reason: str
    trials: int
    sizes: tuple[int, ...]


class Failures(NamedTuple):
    """`counts`: kernel -> status -> trials; `kinds`: the commonest first; `more`: kinds left out."""

    counts: dict[str, dict[str, int]]
    kinds: tuple[Failure, ...]
    more: int


def failures(records: Iterable[Mapping[str, Any]], kernels: Iterable[str]) -> Failures:
    """Trials by status, and what did not end well.

    Args:
        records: of a log.
        kernels: these alone.
    """
    wanted = set(kernels)
    counts: dict[str, Counter[str]] = {}
    kinds: dict[tuple[str, str, str, str], list[int]] = {}
    for record in records:
        found = _ended(record)
        if found is None or found[0] not in wanted:
            continue
        kernel, variant, status, reason, n = found
        counts.setdefault(kernel, Counter())[status] += 1
        if status != "ok":
            kinds.setdefault((kernel, variant, status, reason), []).append(n)
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = tuple(Failure(*name, len(sizes), tuple(sorted(set(sizes)))) for name, sizes in ordered[:MOST])
    table = {kernel: {status: found[status] for status in STATUSES} for kernel, found in counts.items()}
    return Failures(table, shown, max(0, len(ordered) - MOST))


def _ended(record: Mapping[str, Any]) -> tuple[str, str, str, str, int] | None:
    """Kernel, variant, status, reason and n of a trial; None for other records."""
    try:
        if record["kind"] != "trial":
            return None
        done = record["measurement"]
        problem, variant = done["problem"], done["choice"]["build"]["variant"]
        reason = str(done.get("reason") or "")[:LONGEST]
        return str(problem["kernel"]), str(variant), str(done["status"]), reason, size(problem["n"])
    except ODD:
        return None
