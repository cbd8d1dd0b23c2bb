"""Answers as data: `--format json`, `csv` and `markdown`. These print any number of answers."""

from __future__ import annotations

import csv as writer
import io
import json as encoder
from collections.abc import Sequence
from typing import Any

from advisor.answers import Answer
from advisor.policy.launch.device import launch_at

JSON_KEYS = (
    *("kernel", "shape", "dtype", "regime", "variant", "source_hash", "knobs", "compiler", "flags", "threads", "cpus"),
    *("placement", "wait_policy", "spin", "memory_policy", "basis", "expected_ns", "ci95_ns", "spread", "gain"),
    *("regret_bound", "regret_sizes", "in_tuned_region", "fragility", "objective", "stolen_mean_ns", "stolen_p99_ns"),
    *("joules", "contended", "device", "table_id", "hardware_id", "why", "warnings"),
    *("rung", "machines", "validated_regret"),
)

COLUMNS = (
    *("kernel", "n", "dtype", "shape", "regime", "variant", "knobs", "compiler", "flags", "threads", "cpus"),
    *("wait_policy", "spin", "memory_policy", "device", "basis", "expected_ns", "gain", "fragility", "regret_bound"),
    *("placement", "table_id"),
)
"""Columns of a CSV file and, without the last two, of a Markdown table."""

_LIVE = ("=", "+", "-", "@", "\t", "\r")
"""What a cell must not begin with, or a spreadsheet takes it for a formula."""

Asked = tuple[Answer, int]
"""An answer and the n that was asked."""


def to_dict(answer: Answer, n: int | None = None) -> dict[str, Any]:
    """The JSON data of one answer of `advisor recommend --json`.

    Args:
        answer: what a policy said.
        n: the n that was asked; adds `n` and `estimate_ns` (interpolated, None where not possible), for a GPU `launch`
            (see `device.launch_of`).
    """
    data = {key: getattr(answer, key) for key in JSON_KEYS}
    for key in ("cpus", "ci95_ns", "warnings", "machines"):
        data[key] = None if data[key] is None else list(data[key])
    if n is not None:
        data |= {"n": n, "estimate_ns": answer.estimate(n)}
    if n is not None and answer.device:
        data["launch"] = launch_at(answer, n)
    return data


def json(asked: Sequence[Asked]) -> str:
    """The document of `--json`."""
    return encoder.dumps({"answers": [to_dict(*one) for one in asked]}, allow_nan=False, indent=2)


def csv(asked: Sequence[Asked]) -> str:
    """A head and a line an answer; an empty cell is unknown. Text that a spreadsheet would run gets a quote."""
    out = io.StringIO()
    lines = writer.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows([_inert(_cell(one, name)) for name in COLUMNS] for one in asked)
    return out.getvalue().rstrip("\n")


def markdown(asked: Sequence[Asked]) -> str:
    """A table in GitHub's Markdown."""
    names = COLUMNS[:-2]
    rows = [[_plain(str(_cell(one, name))) for name in names] for one in asked]
    return "\n".join("| " + " | ".join(row) + " |" for row in [names, ["---"] * len(names), *rows])


def _cell(asked: Asked, name: str) -> str | int | float:
    """One value as it stands in a cell."""
    answer, n = asked
    value = n if name == "n" else getattr(answer, name)
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return value if isinstance(value, int | float) else str(value)


def _inert(value: str | float) -> str | float:
    return f"'{value}" if isinstance(value, str) and value.startswith(_LIVE) else value


_SPECIAL = str.maketrans(
    {"|": "\\|", "\\": "\\\\", "`": "\\`", "*": "\\*", "<": "&lt;", ">": "&gt;", "&": "&amp;", "[": "\\[", "\n": " "}
)


def _plain(text: str) -> str:
    """Text in which nothing means anything to Markdown or HTML."""
    return text.translate(_SPECIAL).replace("\r", " ")
