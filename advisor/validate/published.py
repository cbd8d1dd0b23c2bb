"""The paper's tables, read from the files beside this module.

Source: Mullin and Hains, sections 3 to 6; published/README.md names paper and machine.
"""

from __future__ import annotations

import csv
import functools
import os
from typing import Any, NamedTuple

from advisor.errors import SchemaError

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "published")

THREADS = 128
"""Most threads of the paper's CPU node, which has as many cores."""


class Forward(NamedTuple):
    """A row of table 1. `slowdown`: 128 threads against the best."""

    n: int
    best_threads: int
    speedup: float
    slowdown: float
    one_thread_s: float


class Pair(NamedTuple):
    """Two times at one n and thread count: forward and backward with A kept, and fused; in seconds."""

    n: int
    threads: int
    naive_s: float
    fused_s: float


class Decode(NamedTuple):
    """Decode with 64 and with 128 threads, in seconds."""

    n: int
    half_s: float
    all_s: float


class OnGpu(NamedTuple):
    """A row of table 2: forward on two GPUs, in seconds."""

    n: int
    a100_s: float
    h200_s: float


TEXTS = ("finding", "machine", "n", "unit")
"""Columns that are no numbers."""


def read(name: str) -> list[dict[str, Any]]:
    """The rows of one file; its first line is a comment, its second the names of the columns.

    Raises:
        SchemaError: the file does not look like that.
    """
    path = os.path.join(FOLDER, name)
    with open(path, encoding="utf-8", newline="") as file:
        first = file.readline()
        rows = list(csv.DictReader(file))
    try:
        if not first.startswith("#") or not rows:
            raise ValueError(first)
        texts = TEXTS if "finding" in rows[0] else ()
        return [{key: value if key in texts else float(value) for key, value in row.items()} for row in rows]
    except (TypeError, ValueError) as error:
        raise SchemaError(
            "a published table is a comment, a head and rows of numbers", got=f"{path}: {error}"
        ) from None


@functools.cache
def forward() -> tuple[Forward, ...]:
    """Table 1: forward, best threads by n."""
    return tuple(
        Forward(
            int(row["n"]),
            int(row["best_threads"]),
            row["speedup_at_best_vs_1_thread"],
            row["slowdown_of_128_threads_vs_best"],
            row["seconds_1_thread"],
        )
        for row in read("forward_cpu_best_threads_delta.csv")
    )


@functools.cache
def fused() -> tuple[Pair, ...]:
    """Both tables of section 4.2: every n at 128 threads, and n = 4096 at every thread count; no (n, threads) twice."""
    wide = [
        Pair(int(row["n"]), THREADS, row["naive_seconds"], row["fused_seconds"])
        for row in read("fused_vs_naive_cpu_128threads_delta.csv")
    ]
    deep = [
        Pair(4096, int(row["threads"]), row["naive_seconds"], row["fused_seconds"])
        for row in read("fused_vs_naive_cpu_n4096_delta.csv")
    ]
    return tuple({(pair.n, pair.threads): pair for pair in [*deep, *wide]}.values())


@functools.cache
def decode() -> tuple[Decode, ...]:
    """Section 5.1: decode, 64 against 128 threads."""
    rows = read("decode_cpu_64_vs_128_delta.csv")
    return tuple(Decode(int(row["n"]), row["seconds_64_threads"], row["seconds_128_threads"]) for row in rows)


@functools.cache
def forward_on_gpus() -> tuple[OnGpu, ...]:
    """Table 2: forward on an A100 and an H200."""
    rows = read("forward_gpu.csv")
    return tuple(OnGpu(int(row["n"]), row["a100_seconds"], row["h200_seconds"]) for row in rows)


@functools.cache
def _figures() -> dict[tuple[str, str, str], float]:
    return {(row["finding"], row["machine"], row["n"]): row["value"] for row in read("gpu_findings.csv")}


def on_gpu(finding: str, machine: str = "A100", n: int | None = None) -> float:
    """A single figure of the paper's GPU sections.

    Raises:
        SchemaError: it has none of that name.
    """
    try:
        return _figures()[finding, machine, "" if n is None else str(n)]
    except KeyError:
        raise SchemaError("a published figure must be in gpu_findings.csv", got=(finding, machine, n)) from None
