"""The ledger: what did not land and why, and what landed, one JSON line each, beside the tables.

A line, once written, stays as it is until the bound pushes it out: the file is written anew with each further line, so
that it is whole at any time. Nothing is decided by it: it is for people.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from advisor import codec
from advisor.errors import AdvisorError
from advisor.policy.landing import Decision, mechanism
from advisor.policy.store import locked, replace
from advisor.records import Problem

NAME = "ledger.jsonl"

MOST = 1000
"""Lines kept: a tuning a day for years, in less than a megabyte or two."""


def entry(decision: Decision, problem: Problem, session: str, table_id: str, now: datetime.datetime) -> dict[str, Any]:
    """One line: the decision with its figures, and what the candidate does otherwise.

    Args:
        problem: any of the shape.
        session: the tuning's, whose races are in the log.
        table_id: of the table as it stands afterwards.
        now: in UTC.
    """
    return {
        "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "session": session,
        "kernel": problem.kernel,
        "dtype": problem.dtype,
        "shape": dict(problem.shape),
        "regime": problem.regime,
        "verdict": decision.verdict,
        "landed": decision.lands,
        "why": decision.why,
        "gain": decision.gain,
        "bar": decision.bar,
        "added": list(decision.added),
        "taken": list(decision.taken),
        "table_id": table_id,
        "failed": [{"n": n, "candidate": codec.to_json(choice)} for n, choice in decision.failed],
        "compared": [
            {
                "n": one.n,
                "weight": round(one.weight, 6),
                "ratio": one.ratio,
                "ratio_ci95": None if one.ratio_ci95 is None else list(one.ratio_ci95),
                "mechanism": mechanism(one.incumbent, one.candidate),
                "candidate": codec.to_json(one.candidate),
            }
            for one in decision.compared
            if one.incumbent != one.candidate
        ],
    }


def append(folder: str, line: dict[str, Any]) -> None:
    """Add a line to a folder's ledger, whole or not at all, under a lock."""
    path = os.path.join(folder, NAME)
    with locked(path):
        lines = [*_lines(path), codec.dumps(line)][-MOST:]
        replace(path, "".join(f"{one}\n" for one in lines))


def read(folder: str, kernel: str | None = None) -> tuple[dict[str, Any], ...]:
    """The lines of a folder's ledger, oldest first; what cannot be read is passed over.

    Args:
        kernel: only those of one kernel.
    """
    return tuple(line for line in _parsed(os.path.join(folder, NAME)) if kernel in (None, line.get("kernel")))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file if line.strip()]
    except OSError:
        return []


def _parsed(path: str) -> Iterator[dict[str, Any]]:
    for line in _lines(path):
        with suppress(AdvisorError):
            found = codec.loads(line, path)
            if isinstance(found, dict):
                yield found
