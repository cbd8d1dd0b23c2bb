"""Rows of benchmarks/kernels.py: judged from samples, shown as text, kept as JSON. Nothing is measured here."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from kernel_choices import LAYERS, OWN

from advisor.codec import from_json, to_json
from advisor.errors import BadInput
from advisor.kernels.memory import operand_bytes
from advisor.kernels.spec import KernelSpec
from advisor.records import Choice, Machine, Pairs, Problem, pairs
from advisor.search.samples import log_ratio, p25

BARS = {
    ("paper", "floor"): 1.2,
    ("paper", "torch"): 0.8,
    ("served", "floor"): 2.0,
    ("served", "torch"): 0.6,
}
"""Decode in float32: the most that the choice's time over the read floor and over PyTorch may be; 1.4 over the floor
for the paper's shape at n = 1024. Source: the project's first measurements."""

LEAST_DECODE_N = 1024
"""The least n that they were set for."""

LAYER_BARS = {"mlp": 0.6, "rmsnorm": 0.6}
"""The most that a native variant's time over PyTorch's may be in float32. Source: as above."""

FORWARD_BARS = {("AMD", 2): 0.55, ("Intel", 16): 1.0}
"""(vendor, CPUs) -> the most that a native forward's time over PyTorch's may be. Source: as above."""


class Ratio(NamedTuple):
    """`over` over `under`, each a role or a peer: a ratio of 25th percentiles with its bootstrap 95 % interval."""

    over: str
    under: str
    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """slower, faster, or tie where the interval holds 1."""
        return "slower" if self.low > 1 else "faster" if self.high < 1 else "tie"


class Bar(NamedTuple):
    """The most that a ratio may be, and whether its value is."""

    over: str
    under: str
    limit: float
    met: bool


class Entry(NamedTuple):
    """One role: who plays it, whence (table or look), on which CPUs in order of threads, 25th percentile in ns."""

    role: str
    choice: Choice
    source: str
    cpus: tuple[int, ...] | None
    mapping: str
    p25_ns: float


class Peer(NamedTuple):
    """What it is compared with: floor or torch, the best form's name, 25th percentile in ns."""

    kind: str
    name: str
    p25_ns: float


class Key(NamedTuple):
    """What a row is about. `shape` is the name asked for; `threads` None: as the table or a look says."""

    shape: str
    problem: Problem
    threads: int | None


class Row(NamedTuple):
    """One kernel, shape, dtype and n. `rate` in `unit`: flops of the DNF or bytes of its inputs over the choice's time.

    `sources`: variant -> source hash of all that competed, and PyTorch's version: rows of others are measured again.
    `memory`: how large a set of operands is, and the least cache that holds it.
    """

    key: Key
    entries: tuple[Entry, ...]
    peers: tuple[Peer, ...]
    ratios: tuple[Ratio, ...]
    bars: tuple[Bar, ...]
    rate: float
    unit: str
    rounds: int
    left_out: Pairs
    sources: Pairs
    memory: str = ""

    def entry(self, role: str) -> Entry | None:
        """Who plays a role, None where nobody does."""
        return next((one for one in self.entries if one.role == role), None)

    def ratio(self, over: str, under: str) -> Ratio | None:
        """A ratio, None where one side was not measured."""
        return next((one for one in self.ratios if (one.over, one.under) == (over, under)), None)


class Measured(NamedTuple):
    """What one row's race gave.

    Attributes:
        roles: role -> (choice, table or look, the name of its samples).
        samples: name -> ns, one a round; names that begin with `floor` and `torch` are the peers'.
        left_out: what could not be timed, and why.
    """

    key: Key
    roles: dict[str, tuple[Choice, str, str]]
    samples: dict[str, list[float]]
    left_out: dict[str, str]
    rounds: int


# --- judge ---


def ratio(over: str, under: str, over_ns: list[float], under_ns: list[float]) -> Ratio:
    """One ratio from samples of the same rounds. Of the same samples it is 1 without doubt."""
    found = log_ratio(under_ns, over_ns, alpha=0.05, seed=0)
    return Ratio(over, under, *(math.exp(x) for x in found))


def best_peers(samples: dict[str, list[float]]) -> list[Peer]:
    """The fastest floor and the fastest form of PyTorch, of those that raced."""
    found = []
    for kind in ("floor", "torch"):
        names = [name for name in samples if name.startswith(kind)]
        if names:
            best = min(names, key=lambda name: p25(samples[name]))
            found.append(Peer(kind, best, p25(samples[best])))
    return found


def ratios(measured: Measured, peers: list[Peer]) -> list[Ratio]:
    """choice, native and single variants over each peer, choice over native, fused over naive, the floor over PyTorch:
    those of which both sides were timed.
    """
    times = {role: measured.samples[name] for role, (_, _, name) in measured.roles.items()}
    times |= {peer.kind: measured.samples[peer.name] for peer in peers}
    wanted = [(role, kind) for kind in ("floor", "torch") for role in ("choice", "native")]
    wanted += [("choice", "native"), ("fused", "naive"), ("floor", "torch")]
    wanted += [(role, "torch") for role in times if role.startswith(OWN)]
    return [ratio(over, under, times[over], times[under]) for over, under in wanted if over in times and under in times]


def limits(key: Key, machine: Machine) -> dict[tuple[str, str], float]:
    """The bars that hold for a row: (over, under) -> the most that the ratio may be."""
    problem = key.problem
    if problem.kernel in LAYER_BARS and problem.dtype == "float32":
        return {("native", "torch"): LAYER_BARS[problem.kernel]}
    if problem.kernel == "forward":
        cpus = len(machine.allowed_cpus)
        for (vendor, count), limit in FORWARD_BARS.items():
            if vendor in (machine.vendor or "") and cpus == count:
                return {("native", "torch"): limit}
    if problem.kernel == "decode" and problem.dtype == "float32" and problem.n >= LEAST_DECODE_N:
        form = "paper" if key.shape == "paper" else "served"
        found = {("choice", kind): BARS[form, kind] for kind in ("floor", "torch")}
        if (form, problem.n) == ("paper", 1024):
            found["choice", "floor"] = 1.4
        return found
    return {}


def bars(found: list[Ratio], limit: dict[tuple[str, str], float]) -> list[Bar]:
    """Which bars are met, by the ratio itself, not its interval."""
    return [
        Bar(one.over, one.under, limit[one.over, one.under], one.value <= limit[one.over, one.under])
        for one in found
        if (one.over, one.under) in limit
    ]


def rate(spec: KernelSpec, problem: Problem, time_ns: float, cache_bytes: int | None) -> tuple[float, str]:
    """GB/s of what the read floor reads too, where that is known; else Gflop/s by the flops of the DNF."""
    if cache_bytes is not None:
        return cache_bytes / time_ns, "GB/s"
    return spec.flops(problem) / time_ns, "Gflop/s"


def lies_in(machine: Machine, size: int) -> str:
    """How large something is and the least cache that holds it, such as `1.5 MiB, in L3`."""
    levels = {name: bytes_of for name, bytes_of in zip(("L1", "L2", "L3"), machine.caches, strict=True) if bytes_of}
    where = next((f"in {name}" for name, bytes_of in levels.items() if size <= bytes_of), "beyond all caches")
    return f"{size / 2**20:.3g} MiB, {where}"


class Context(NamedTuple):
    """What rows are judged with. `places`: team of a choice -> CPUs; `mappings`: variant -> its thread mapping."""

    machine: Machine
    spec: KernelSpec
    cache_bytes: int | None
    mappings: dict[str, str]
    cpus: dict[Choice, tuple[int, ...] | None]
    sources: Pairs


def judge(context: Context, measured: Measured) -> Row:
    """The row of one race."""
    peers = best_peers(measured.samples)
    found = ratios(measured, peers)
    entries = tuple(
        Entry(
            role,
            choice,
            source,
            context.cpus.get(choice),
            context.mappings.get(choice.build.variant, ""),
            p25(measured.samples[name]),
        )
        for role, (choice, source, name) in measured.roles.items()
    )
    problem = measured.key.problem
    fast = next(entry.p25_ns for entry in entries if entry.role == "choice")
    return Row(
        measured.key,
        entries,
        tuple(peers),
        tuple(found),
        tuple(bars(found, limits(measured.key, context.machine))),
        *rate(context.spec, problem, fast, context.cache_bytes),
        measured.rounds,
        pairs(measured.left_out),
        context.sources,
        lies_in(context.machine, operand_bytes(context.spec, problem)),
    )


# --- print ---


def shown_time(time_ns: float) -> str:
    """A time in us, ms or s."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if time_ns >= size:
            return f"{time_ns / size:.2f} {unit}"
    return f"{time_ns / 1e3:.2f} us"


def shown_ratio(row: Row, over: str, under: str) -> str:
    """A ratio with its interval, and its bar where it has one; empty where it was not measured."""
    found = row.ratio(over, under)
    if found is None:
        return ""
    bar = next((one for one in row.bars if (one.over, one.under) == (over, under)), None)
    judged = f" {'met' if bar.met else 'MISSED'} (bar {bar.limit})" if bar else ""
    verdict = f" {found.verdict}" if under == "naive" else ""
    value, low, high = (shown_number(one) for one in (found.value, found.low, found.high))
    return f"{over}/{under} {value} [{low}, {high}]{verdict}{judged}"


def shown_number(value: float) -> str:
    """Two decimals, more where they would be zeros."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def shown_choice(entry: Entry) -> str:
    """A choice in one line."""
    made, team, process = entry.choice
    knobs = "".join(f" {key}={value}" for key, value in made.knobs)
    policy = f", wait policy {process.wait_policy}" if process else ""
    threads = f", {team.threads} threads on CPUs {entry.cpus or 'unpinned'}" if team else ""
    return f"{made.variant}{knobs}, {made.compiler} {made.flags}{threads}{policy} (from the {entry.source})"


def lines(row: Row) -> list[str]:
    """A row as text: figures first, then who they belong to."""
    problem = row.key.problem
    columns = [("choice", "floor"), ("choice", "torch"), ("native", "torch"), ("choice", "native"), ("fused", "naive")]
    columns += [("floor", "torch")] if problem.kernel in LAYERS else []
    native = row.entry("native")
    same = native is not None and native.choice == row.entry("choice").choice
    barred = "native" if problem.kernel in ("forward", *LAYERS) else "choice"
    hidden = {("choice" if barred == "native" else "native", "torch"), ("choice", "native")}
    shown = [shown_ratio(row, *pair) for pair in columns if not (same and pair in hidden)]
    fast = next(entry.p25_ns for entry in row.entries if entry.role == "choice")
    head = (
        f"{problem.kernel} {problem.dtype} n={problem.n} ({row.memory}): {shown_time(fast)}, {row.rate:.1f} {row.unit}"
    )
    found = ["   ".join([head, *filter(None, shown)])]
    for choice in dict.fromkeys(entry.choice for entry in row.entries):
        own = [entry for entry in row.entries if entry.choice == choice]
        roles = ", ".join(entry.role for entry in own)
        beside = [shown_ratio(row, entry.role, "torch") for entry in own if entry.role.startswith(OWN)]
        ending = "".join(f"   {text}" for text in beside if text)
        found.append(f"    {roles}: {shown_choice(own[0])} {shown_time(own[0].p25_ns)}{ending}")
    found += [f"    {peer.name} {shown_time(peer.p25_ns)}" for peer in row.peers]
    return found + [f"    without {name}: {reason}" for name, reason in row.left_out]


def conclusions(rows: Iterable[Row]) -> list[str]:
    """Bars met of all there are, and fused over naive at the largest n of every shape and dtype."""
    rows = list(rows)
    judged = [bar for row in rows for bar in row.bars]
    found = [f"bars met: {sum(bar.met for bar in judged)} of {len(judged)}"] if judged else []
    found += [
        f"  missed: {row.key.problem.kernel} {row.key.shape} {row.key.problem.dtype} n={row.key.problem.n} "
        f"{shown_ratio(row, bar.over, bar.under)}"
        for row in rows
        for bar in row.bars
        if not bar.met
    ]
    largest: dict[tuple[str, Any, str], Row] = {}
    for row in sorted(rows, key=lambda row: row.key.problem.n):
        if row.ratio("fused", "naive"):
            largest[row.key.shape, row.key.problem.shape, row.key.problem.dtype] = row
    for (shape, _, dtype), row in sorted(largest.items()):
        one = row.ratio("fused", "naive")
        if one:
            word = "SLOWER than" if one.verdict == "slower" else "not slower than"
            where = f"{shape}, {dtype}, n={row.key.problem.n}"
            found.append(f"fused is {word} naive at the largest n run ({where}): {shown_ratio(row, 'fused', 'naive')}")
    return found


def mappings(rows: Iterable[Row]) -> list[str]:
    """The thread mapping of every variant that played a role."""
    found = {(row.key.problem.kernel, e.choice.build.variant): e.mapping for row in rows for e in row.entries}
    return [f"mapping of {kernel} {name}: {text or 'its own'}" for (kernel, name), text in sorted(found.items())]


# --- keep ---


def save(path: str, conditions: dict[str, Any], rows: list[Row], left_out: dict[str, str]) -> None:
    """Write all rows so that a reader, or a run killed in the middle, sees a whole file."""
    document = {
        "benchmark": "kernels",
        "conditions": conditions,
        "rows": [to_json(row) for row in rows],
        "left_out": left_out,
    }
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, allow_nan=False)
    os.replace(f"{path}.new", path)


def load(path: str, machine: Machine) -> list[Row]:
    """Rows of an earlier run with the same file; none where there is no file.

    Raises:
        BadInput: the file is something else, or of another machine.
    """
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        try:
            document = json.load(file)
        except ValueError as error:
            raise BadInput("--json must name a file of this benchmark, or none", got=path) from error
    conditions = document.get("conditions", {}) if isinstance(document, dict) else {}
    here = [machine.hardware_id, machine.limits_id]
    if [conditions.get("hardware_id"), conditions.get("limits_id")] != here:
        raise BadInput(
            "--json must name a file of this machine, or none", got=path, next_step="give another file, or remove it"
        )
    return [from_json(Row, row, "row") for row in document["rows"]]
