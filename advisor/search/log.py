"""The measurement log: append-only JSON lines, the truth from which everything else can be rebuilt.

One `os.write` a record on a descriptor opened for appending, so that two tuners at once lose nothing and a crash tears
at most the last line. Record kinds: session, trial, race (one sample of a race), verdict.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from advisor.codec import SCHEMAS, check_schema, dumps, loads, schema_of
from advisor.errors import AdvisorError, BadInput, Missing, SchemaError

KINDS = ("session", "trial", "race", "verdict")
"""Kinds this program knows; records of other kinds are skipped with a note."""

MOST_NOTES = 4
"""Notes on a log that are told one by one."""

SYNC_S = 1.0
"""A record reaches the disk at most this long after it was written."""

SCHEMA = schema_of("measurements")


class Log:
    """An open log. The caller owns it and closes it; a context manager does so."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):  # a pipe would take some records and then block for ever
            os.close(self._fd)
            raise BadInput("the log must be a regular file", got=path, next_step="move what lies there away")
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False
        self._end_torn_line()

    def _end_torn_line(self) -> None:
        """A line torn by a crash must not swallow the next record."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record; it is on disk a second later at the latest.

        Args:
            record: plain JSON data with a `kind`.

        Raises:
            BadInput: the log is closed, the record has no kind or holds a number that is not finite.
            OSError: the disk took less than the whole record.
        """
        if self._closed or record.get("kind") not in KINDS:
            raise BadInput("a record of a known kind goes into an open log", got=record.get("kind"), allowed=str(KINDS))
        line = (dumps(dict(record)) + "\n").encode()
        if os.write(self._fd, line) != len(line):
            raise OSError(f"{self.path}: the disk took less than the whole record; is it full?")
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(SYNC_S, self.sync)
                self._timer.daemon = True
                self._timer.start()

    def sync(self) -> None:
        """Force everything written so far to the disk; called at the end of a group of trials."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._closed:
                os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close. Idempotent."""
        if not self._closed:
            self.sync()
            with self._lock:
                self._closed = True
                os.close(self._fd)

    def __enter__(self) -> Log:
        """The log itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close, whatever happened."""
        self.close()


class Records(NamedTuple):
    """What was read: records in the order written, and notes on what was left out or is newer than this program."""

    records: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


def read(path: str) -> Records:
    """All records of a log that this program can read.

    A torn or damaged line is dropped, an unknown kind skipped, both with a note. A session written by a newer minor
    version is read, its unknown fields kept, with a note.

    Raises:
        Missing: there is no such file.
        BadInput: it is a folder, a pipe or a device.
        SchemaError: a session was written by a newer major version.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would wait for ever
            raise BadInput("the log must be a regular file", got=path, next_step="move what lies there away")
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError as error:
        raise Missing("the log must exist", got=path, next_step="run `advisor tune`") from error
    records, notes = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record, note = _parse(line, f"{path} line {number}", number == len(lines))
        records += [record] if record is not None else []
        notes += [note] if note else []
    return Records(tuple(records), _few(list(dict.fromkeys(notes)), path))


def _few(notes: list[str], path: str) -> tuple[str, ...]:
    """The first notes, and how many more there are: a damaged log has thousands, which nobody reads."""
    more = len(notes) - MOST_NOTES
    return tuple(notes) if more <= 0 else (*notes[:MOST_NOTES], f"{path}: {more} more such lines")


def _parse(line: bytes, where: str, last: bool) -> tuple[dict[str, Any] | None, str]:
    """One line as (record or None, note or the empty text)."""
    try:
        record = loads(line.decode(), where)
    except (AdvisorError, UnicodeDecodeError):
        return None, f"{where}: {'torn last' if last else 'damaged'} line dropped"
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        kind = record.get("kind") if isinstance(record, dict) else None
        return None, f"{where}: record of unknown kind {kind!r} skipped"
    try:
        return record, _newer(record, where) if record["kind"] == "session" else ""
    except SchemaError as error:
        if "newer" in error.rule:
            raise
        return None, f"{where}: session of an unreadable schema skipped"


def _newer(record: dict[str, Any], where: str) -> str:
    """A note when a session was written by a newer minor version; refuses a newer major one."""
    check_schema(record, "measurements", where)
    minor = str(record["schema"]).rpartition(".")[2]
    if not minor.isdigit():
        raise SchemaError(f"{where} has an unreadable schema version", got=record["schema"], allowed=SCHEMA)
    if int(minor) > SCHEMAS["measurements"][1]:
        return f"{where}: written by a newer advisor ({record['schema']}); fields unknown here are ignored"
    return ""


def of_sessions(records: Iterable[dict[str, Any]], sessions: Iterable[str]) -> list[dict[str, Any]]:
    """The records that belong to the sessions named, in the order written."""
    wanted = set(sessions)
    return [r for r in records if isinstance(r.get("session"), str) and r["session"] in wanted]
