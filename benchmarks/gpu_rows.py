"""Rows of benchmarks/gpu.py on disk: one JSON line each, only ever appended, so that a killed part loses none.

A row has what was measured and nothing that was judged from it. Of rows with one part and key the last one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

FILE = "rows.jsonl"


class Row(NamedTuple):
    """What one step of a part measured, plain data.

    Attributes:
        part: tune, race, regret, cold, counters.
        key: what is told apart inside a part: shape, n, ...
        sources: variant -> source hash, tool -> version: a row of others is measured again.
        state: card, driver, versions, clocks, power limit, cache regime.
        seconds: what the row took.
        data: the figures.
        failed: why there are none; empty where there are.
    """

    part: str
    key: dict[str, Any]
    sources: dict[str, str]
    state: dict[str, Any]
    seconds: float
    data: dict[str, Any]
    failed: str = ""


class Found(NamedTuple):
    """Rows in the order of their keys' first lines, and what was dropped."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


class Store:
    """The rows of one folder, open for more. Close it, or use it as a context manager."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, FILE)
        self.found = read(folder)
        self._file = open(path, "ab")  # noqa: SIM115 (close does)
        if torn(path):
            self._file.write(b"\n")  # a line that a kill cut short must not swallow the next

    def add(self, row: Row) -> None:
        """Append a row; it is on the disk when this returns."""
        line = json.dumps(row._asdict(), allow_nan=False, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.found = self.found._replace(rows=latest([*self.found.rows, row]))

    def done(self, part: str, key: dict[str, Any], sources: dict[str, str]) -> bool:
        """Whether a row with figures is there that was measured with these very sources."""
        wanted = (part, key, sources, "")
        return any((row.part, row.key, row.sources, row.failed) == wanted for row in self.found.rows)

    def failed(self, part: str, key: dict[str, Any]) -> bool:
        """Whether a row was tried and gave no figures."""
        return any((row.part, row.key) == (part, key) and row.failed for row in self.found.rows)

    def of(self, part: str) -> list[Row]:
        """The rows of one part."""
        return [row for row in self.found.rows if row.part == part]

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read(folder: str) -> Found:
    """The rows of a folder; none where there is no file."""
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return Found((), ())
    rows, notes = [], []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(Row(**json.loads(line)))
            except (ValueError, TypeError):
                how = "damaged" if line.endswith(b"\n") else "torn"
                notes += [f"{FILE} line {number}: {how}, left out"] if line.strip() else []
    return Found(latest(rows), tuple(notes))


def latest(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The last row of each part and key."""
    found: dict[str, Row] = {}
    for row in rows:
        found[json.dumps([row.part, row.key], sort_keys=True)] = row
    return tuple(found.values())


def torn(path: str) -> bool:
    """Whether the last line of a file has no end."""
    if not os.path.exists(path) or not os.path.getsize(path):
        return False
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"
