"""The measurement log: append-only JSON lines, the truth from which everything else can be rebuilt.

One `os.write` a record on a descriptor opened for appending, so that two tuners at once lose nothing and a crash tears
at most the last line. Record kinds: session, trial, race (one sample of a race), verdict, counters (of a
device).
"""

from __future__ import annotations

import fcntl
import gzip
import os
import stat
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from advisor.codec import SCHEMAS, check_schema, dumps, loads, schema_of
from advisor.errors import AdvisorError, BadInput, Busy, Missing, SchemaError
from advisor.words import many

KINDS = ("session", "trial", "race", "verdict", "counters")
"""Kinds this program knows; records of other kinds are skipped with a note."""

NAMES = ("measurements.jsonl", "measurements.jsonl.gz")
"""The log of a machine's folder, and that of a shipped policy."""

MOST_NOTES = 4
"""Notes on a log that are told one by one."""

SYNC_S = 1.0
"""A record reaches the disk at most this long after it was written."""

SCHEMA = schema_of("measurements")

NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
    "fuse.sshfs",
)
"""File systems on which two machines that append at once overwrite each other. Source: open(2), O_APPEND, for NFS."""

WRITER_WAIT_S = 10.0
"""How long a log on such a file system is waited for; only another machine can hold it for longer than a moment."""


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
        self._failed: OSError | None = None
        try:
            if is_network(file_system(path)):
                _own(self._fd, path)
            self._end_torn_line()
        except BaseException:
            os.close(self._fd)
            raise

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
            OSError: the disk took less than the whole record, or could not keep an earlier one.
        """
        if self._failed is not None:
            raise self._failed
        if self._closed or record.get("kind") not in KINDS:
            raise BadInput("a record of a known kind goes into an open log", got=record.get("kind"), allowed=str(KINDS))
        line = (dumps(dict(record)) + "\n").encode()
        _LAST.clear()
        if os.write(self._fd, line) != len(line):
            raise OSError(f"{self.path}: the disk took less than the whole record; is it full?")
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(SYNC_S, self._sync_later)
                self._timer.daemon = True
                self._timer.start()

    def _sync_later(self) -> None:
        """Sync, on the timer's thread: what goes wrong there is raised by the next record."""
        try:
            self.sync()
        except OSError as error:
            self._failed = error

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
            try:
                self.sync()
            finally:
                with self._lock:
                    self._closed = True
                    os.close(self._fd)

    def __enter__(self) -> Log:
        """The log itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close, whatever happened."""
        self.close()


# --- where it lies ---


def file_system(path: str, mounts: str = "/proc/self/mounts") -> str | None:
    """The type of the file system that a path lies on, None where that is not told.

    Source: proc(5), /proc/pid/mounts: device, mount point, type; the last that fits is the one that is seen.
    """
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            fields = [line.split() for line in file]
    except OSError:
        return None
    inside = os.path.join(os.path.realpath(path), "")
    found = [
        (len(point), kind)
        for _, escaped, kind, *_ in (one for one in fields if len(one) >= 3)
        if inside.startswith(os.path.join(point := escaped.replace("\\040", " "), ""))
    ]
    longest = max((length for length, _ in found), default=0)
    return next((kind for length, kind in reversed(found) if length == longest), None)


def is_network(kind: str | None) -> bool:
    """Whether other machines may write to a file system of this type too."""
    return kind is not None and kind in NETWORK


def _own(descriptor: int, path: str) -> None:
    """Lock a log for this program alone, for as long as it is open. NFS passes flock on to its server.

    Raises:
        Busy: another machine has it.
        BadInput: the file system has no locks, so that two machines could destroy each other's records.
    """
    next_step = "set ADVISOR_HOME to a folder on a disk of this machine"
    until = time.monotonic() + WRITER_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                rule = "one machine at a time may write to a log on a network file system"
                raise Busy(rule, got=path, next_step=f"wait for the other one, or {next_step}") from None
        except OSError as error:
            rule = "a log on a network file system must be one that can be locked"
            raise BadInput(rule, got=f"{path} ({error.strerror})", next_step=next_step) from None
        time.sleep(0.1)


def set_aside(path: str) -> str:
    """Move a log that this program must not add to out of its place, and say so; empty where there is no reason to.

    A newer advisor wrote it: what is appended now could not be read again.
    """
    try:
        if os.path.exists(path):
            read(path)
        return ""
    except SchemaError as error:
        place, count = f"{path}.newer", 1
        while os.path.exists(place):
            place, count = f"{path}.newer.{count}", count + 1
        os.rename(path, place)
        return f"{path} cannot be used and was set aside as {os.path.basename(place)}: {error}"


class Records(NamedTuple):
    """What was read: records in the order written, and notes on what was left out or is newer than this program."""

    records: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


_LAST: dict[tuple[Any, ...], Records] = {}
"""What was read last, until something is written: a tuning asks its log three times before it measures, and the memory
that this takes, some eight times the file's size, must be free by then."""


def read(path: str) -> Records:
    """All records of a log that this program can read. Nobody changes them: who asks again has the same ones.

    A torn or damaged line is dropped, an unknown kind skipped, both with a note. A session written by a newer minor
    version is read, its unknown fields kept, with a note.

    Raises:
        Missing: there is no such file.
        BadInput: it is a folder, a pipe or a device, or a packed file that is cut.
        SchemaError: a session was written by a newer major version.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would wait for ever
            raise BadInput("the log must be a regular file", got=path, next_step="move what lies there away")
        stamp = (path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if (kept := _LAST.get(stamp)) is not None:
            return kept
        _LAST.clear()
        with open(path, "rb") as file:
            lines = _unpacked(file.read(), path).split(b"\n")
    except FileNotFoundError as error:
        raise Missing("the log must exist", got=path, next_step="run `advisor tune`") from error
    kept = _LAST[stamp] = _parsed(lines, path)
    return kept


def _parsed(lines: Sequence[bytes], path: str) -> Records:
    records, notes = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record, note = _parse(line, f"{path} line {number}", number == len(lines))
        records += [record] if record is not None else []
        notes += [note] if note else []
    return Records(tuple(records), _few(list(dict.fromkeys(notes)), path))


def _unpacked(raw: bytes, path: str) -> bytes:
    """The bytes of a log, also of one that was packed with gzip, as shipped policies have them."""
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput("a packed log must be whole", got=path, next_step=str(error)) from error


def _few(notes: list[str], path: str) -> tuple[str, ...]:
    """The first notes, and how many more there are: a damaged log has thousands, which nobody reads."""
    more = len(notes) - MOST_NOTES
    return tuple(notes) if more <= 0 else (*notes[:MOST_NOTES], f"{path}: {many(more, 'more such line')}")


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
