"""What other machines measured: their tables and logs, read as data.

A machine is a folder with machine.json and tables, and the log beside them where there is one. Other limits on the same
hardware are another machine. What cannot be read is passed over: it is help, not truth.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from advisor import codec
from advisor.device import is_device
from advisor.errors import AdvisorError
from advisor.paths import shipped_policies, state_dir
from advisor.records import Choice, Machine, Pairs, Section, Table
from advisor.search.known import NO_LOOKS
from advisor.search.log import NAMES
from advisor.search.portable import Portable, portable
from advisor.search.traits import Spot, model_of, spot_of
from advisor.topology.probe import read_machine

MOST_BYTES = 32 << 20
"""Bytes of a log that are read, the newest: some two seconds on one core."""

Stamp = tuple[int, int]
"""When a file was written (ns) and its size in bytes."""

Group = tuple[str, str, Pairs]
"""dtype, regime, shape."""


class Timed(NamedTuple):
    """A time in ns, the choice that took it, and whether it comes from a race."""

    ns: float
    choice: Choice
    raced: bool


Cell = dict[Portable, Timed]
"""What was measured at one n: the least time of each choice over placements, tools and flags."""


class Elsewhere(NamedTuple):
    """A machine that was tuned.

    Attributes:
        name: of its folder.
        model: which silicon it is.
        machine, spot: it, and what counts of it.
        cells: dtype, regime, shape -> n -> what was measured.
        picks: the same -> n -> what its table takes, and `defaults` what an untuned machine would.
        unread: bytes of its log that were passed over, the oldest: a log may be of any size.
    """

    name: str
    model: str
    machine: Machine
    spot: Spot
    cells: dict[Group, dict[int, Cell]]
    picks: dict[Group, dict[int, Choice]]
    defaults: dict[Group, Choice]
    unread: int = 0


def machines(kernel: str, own: Machine, roots: Sequence[str] | None = None) -> tuple[Elsewhere, ...]:
    """The machines that have a table of a kernel, but for this one; CPUs for CPUs, devices for devices.

    Args:
        kernel: its name.
        own: this machine; its other limits are other machines.
        roots: folders of machine folders; None: those of this user and those shipped.
    """
    found: dict[tuple[str, str], Elsewhere] = {}
    for folder in _folders(_roots() if roots is None else roots):
        with contextlib.suppress(AdvisorError, OSError, ValueError, LookupError, TypeError, AttributeError):
            one = _read(folder, kernel, _stamp(os.path.join(folder, f"{kernel}.table.json")), _log_stamp(folder))
            ids = one.machine.hardware_id, one.machine.limits_id
            alike = is_device(own.limits_id) == is_device(ids[1])
            if alike and one.cells and ids != (own.hardware_id, own.limits_id):
                found.setdefault(ids, one)
    return tuple(found.values())


def _roots() -> list[str]:
    found = [os.path.join(state_dir(), "machines")]
    with contextlib.suppress(AdvisorError):
        found.append(shipped_policies())
    return found


def _folders(roots: Iterable[str]) -> Iterator[str]:
    for root in roots:
        with contextlib.suppress(OSError):
            yield from (os.path.join(root, name) for name in sorted(os.listdir(root)))


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


def _log_stamp(folder: str) -> tuple[str, Stamp] | None:
    """The log of a machine and when it was written; None where there is none."""
    for name in NAMES:
        with contextlib.suppress(OSError):
            return name, _stamp(os.path.join(folder, name))
    return None


@functools.lru_cache(maxsize=64)
def _read(folder: str, kernel: str, table_stamp: Stamp, log_stamp: tuple[str, Stamp] | None) -> Elsewhere:
    """One machine; the stamps: when its table and its log were written, so that new ones are read again."""
    with open(os.path.join(folder, f"{kernel}.table.json"), encoding="utf-8") as file:
        document = codec.loads(file.read(), folder)
    codec.check_schema(document, "table", folder)
    table: Table = codec.from_json(Table, document, folder)
    machine = read_machine(os.path.join(folder, "machine.json"))
    sections = [section for section in table.sections if not dict(section.extra).get("basis")]
    cells: dict[Group, dict[int, Cell]] = {}
    for section in sections:
        _keep_points(cells.setdefault(_group(section), {}), section)
    log = _Tail() if log_stamp is None else _tail(os.path.join(folder, log_stamp[0]))
    _keep_log(cells, log.lines, kernel)
    picks: dict[Group, dict[int, Choice]] = {}
    for section in sections:
        _keep_picks(picks.setdefault(_group(section), {}), section)
    defaults = {_group(section): section.default for section in reversed(sections)}
    cells = {group: kept for group, found in cells.items() if (kept := _compared(found, defaults[group]))}
    name, model, spot = os.path.basename(folder), model_of(machine), spot_of(machine)
    return Elsewhere(name, model, machine, spot, cells, picks, defaults, log.unread)


def _group(section: Section) -> Group:
    return section.dtype, section.regime, section.shape


def _keep(cell: Cell, choice: Choice, ns: float, raced: bool) -> None:
    """What a race says counts before a first look; of equals the least."""
    key = portable(choice)
    known = cell.get(key)
    if known is None or (raced, -ns) > (known.raced, -known.ns):
        cell[key] = Timed(ns, choice, raced)


def _keep_points(cells: dict[int, Cell], section: Section) -> None:
    for choice, points in [(row.choice, row.points) for row in section.rows] + [
        (section.default, section.default_points)
    ]:
        for point in points:
            _keep(cells.setdefault(point.n, {}), choice, point.summary.p25_ns, point.raced)


def _keep_picks(picks: dict[int, Choice], section: Section) -> None:
    """The choice of the process part that won at n; of a table that does not say, the first section's."""
    won = dict(section.wins).get("latency", ())
    for row in section.rows:
        for n in section.tuned_n:
            if row.low <= n <= row.high and (n in won or n not in picks):
                picks[n] = row.choice


def _keep_log(cells: dict[Group, dict[int, Cell]], lines: Iterable[bytes], kernel: str) -> None:
    """What the log knows of the problems that the table has, choices that lost above all."""
    seen: dict[str, Choice] = {}
    for record in _records(lines, kernel):
        with contextlib.suppress(AdvisorError, LookupError, TypeError, ValueError, AttributeError):
            for problem, choice, ns, raced in _figures(record, seen):
                group = problem["dtype"], problem["regime"], codec.from_json(Pairs, problem["shape"])
                if problem["kernel"] == kernel and group in cells:
                    _keep(cells[group].setdefault(int(problem["n"]), {}), choice, ns, raced)


def _compared(cells: dict[int, Cell], default: Choice) -> dict[int, Cell]:
    """The n at which the default program was measured too: a search that did not come to that, which is among the
    first, was cut short, and its best says nothing."""
    program = default.build.variant, default.build.knobs
    return {n: cell for n, cell in cells.items() if any((what.variant, what.knobs) == program for what in cell)}


class _Tail(NamedTuple):
    """The newest lines of a log, and how many bytes before them were passed over."""

    lines: tuple[bytes, ...] = ()
    unread: int = 0


def _tail(path: str) -> _Tail:
    """The newest lines of a log, `MOST_BYTES` of them or little more, also of a packed one. Of one that is damaged what
    comes before that."""
    pieces: deque[bytes] = deque()
    held = before = 0
    with contextlib.suppress(OSError, EOFError, zlib.error), _opened(path) as file:
        before = file.tell()
        while piece := file.read(1 << 20):
            pieces.append(piece)
            held += len(piece)
            while held - len(pieces[0]) >= MOST_BYTES:
                held, before = held - len(pieces[0]), before + len(pieces.popleft())
    lines = b"".join(pieces).split(b"\n")
    return _Tail(tuple(lines[1:]), before + len(lines[0])) if before else _Tail(tuple(lines))


def _opened(path: str) -> IO[bytes]:
    """A log, at the place from which on it is read; a packed one from its beginning."""
    if path.endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    file = open(path, "rb")  # noqa: SIM115
    file.seek(max(0, os.stat(path).st_size - MOST_BYTES))
    return file


def _records(lines: Iterable[bytes], kernel: str) -> Iterator[dict[str, Any]]:
    own = f'"{kernel}"'.encode()
    for line in lines:
        if own in line and (b'"trial"' in line or b'"verdict"' in line):
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)


def _figures(record: dict[str, Any], seen: dict[str, Choice]) -> Iterator[tuple[dict[str, Any], Choice, float, bool]]:
    """(problem, choice, time, raced) of a look or of a race's standings."""
    if record["kind"] == "trial" and record.get("phase") not in NO_LOOKS:
        told = record["measurement"]
        samples = sorted(told["samples_ns"]) if told["status"] == "ok" else []
        if samples:
            yield told["problem"], _choice(told["choice"], seen), samples[len(samples) // 4], False
    elif record["kind"] == "verdict":
        for one in record["verdict"]["standings"]:
            if one["summary"] and one["outcome"] != "failed":
                yield record["verdict"]["problem"], _choice(one["choice"], seen), one["summary"]["p25_ns"], True


def _choice(data: dict[str, Any], seen: dict[str, Choice]) -> Choice:
    """The record, made once for equal data: a log repeats its choices."""
    key = json.dumps(data)
    if key not in seen:
        seen[key] = codec.from_json(Choice, data)
    return seen[key]
