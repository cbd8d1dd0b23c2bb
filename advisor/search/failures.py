"""What failed in a run and why, in a few lines: one a variant and way of failing."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.records import Measurement
from advisor.words import many

TOLD = ("wrong", "crashed", "timeout")
"""Statuses that speak against a variant. What was skipped was not possible here, or there was no room."""

REASON_CHARACTERS = 120


def failures(trials: Iterable[Measurement]) -> list[str]:
    """One line a variant and status: how many choices, at which n, and the first reason."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for trial in trials:
        if trial.status in TOLD:
            groups.setdefault((trial.choice.build.variant, trial.status), []).append(trial)
    return [_line(variant, status, found) for (variant, status), found in sorted(groups.items())]


def _line(variant: str, status: str, found: list[Measurement]) -> str:
    sizes = ", ".join(str(n) for n in sorted({trial.problem.n for trial in found}))
    reason = " ".join(found[0].reason.split())[:REASON_CHARACTERS]
    choices = many(len(found), "choice")
    return f"{variant}: {choices} {status} at n = {sizes} ({reason})"
