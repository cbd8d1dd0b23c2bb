"""Lookup misses: counted in memory, bounded, and written beside the tables by a thread that no request waits for.

Only where somebody asked for it: `Policy.load(count_misses=True)`, or ADVISOR_COUNT_MISSES=1. A library that is loaded
into a server starts no thread and writes no file by itself. `advisor tune` begins with what lies in the file.
Standard library only and no `typing` at run time; nothing of this is loaded where misses are not counted.
"""

from __future__ import annotations

import atexit
import os
from _operator import index
from _thread import allocate_lock, start_new_thread
from time import sleep, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Key = tuple[str, str | None, str | None, tuple[tuple[str, Any], ...], str, int]
    Counts = dict[Key, list[int]]

NAME, SCHEMA = "misses.json", "advisor.misses/1.0"

MOST_KEYS, MOST_N = 256, 1 << 40
"""Questions kept apart, in memory and in the file; what comes beyond is counted as `other`. Larger n make no sense."""

MOST_TEXT, MOST_AXES, MOST_BYTES = 64, 16, 1 << 20
"""Longest name and most axes that a question may have, and the largest file that is read."""

FIRST_S, EVERY_S, WAIT_S = 1.0, 60.0, 5.0
"""The first miss is written after a second, later ones every minute; how long a writer waits for another process."""

WAIT_AT_EXIT_S = 0.5
"""A process that ends does not hang on a file."""

COUNT, LOW, HIGH, FIRST, LAST = range(5)
"""Places in what is kept of a question: how often, smallest and largest n, first and last time in seconds."""


class Misses:
    """The misses of this process on one machine; all policies of a process share one. Never raises, never waits.

    Two threads that count at the same moment may count once: these are frequencies, and a lock would make requests
    wait for each other.

    Attributes:
        counts: question -> binary digits of n -> what is kept, since the last write; each write begins another one.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.counts: dict[Any, dict[int, list[int]]] = {}
        self._places = MOST_KEYS
        self._other = [0]
        self._writing = allocate_lock()
        self._has_writer = False

    def question(self, kernel: Any, axes: Mapping[str, Any], why: str) -> Question | None:
        """What counts the misses of one question; None for one that no table can ever answer."""
        rest = {name: value for name, value in axes.items() if name not in ("dtype", "regime")}
        shape = tuple(sorted(rest.items()))
        if not (_is_name(kernel) and len(shape) <= MOST_AXES and all(map(_is_axis, shape))):
            return None
        words = axes.get("dtype"), axes.get("regime")
        if not all(word is None or _is_name(word) for word in words):
            return None
        return Question(self, (kernel, *words, shape, why))

    def place(self, key: Any, n: int) -> tuple[dict[int, list[int]], list[int]]:
        """Where the misses of a question at such n are counted: all of the question, and this place. Starts the writer.

        Where there is no room it is counted as other, and neither is kept.
        """
        if not self._has_writer:
            self._start()
        now, own = int(time()), self.counts.get(key, {})
        kept = own.get(n.bit_length())
        if kept is not None:
            return own, kept
        if self._places <= 0:
            self._other[0] += 1
            return {}, [0, n, n, now, now]
        self._places -= 1
        own = self.counts.setdefault(key, own)
        return own, own.setdefault(n.bit_length(), [0, n, n, now, now])

    def _start(self) -> None:
        """Start the writer. Where no thread can be had the end of the process writes."""
        self._has_writer = True
        try:
            start_new_thread(self._write_often, ())
        except RuntimeError:
            return

    def _write_often(self) -> None:
        wait_s = FIRST_S
        while True:
            sleep(wait_s)
            self.flush()
            wait_s = EVERY_S

    def flush(self, wait_s: float = WAIT_S) -> bool:
        """Write what was counted so far. What cannot be written now stays counted.

        Args:
            wait_s: how long to wait for other processes that write, in seconds.

        Returns:
            Whether all is written.
        """
        if not self._writing.acquire(True, wait_s):
            return False
        try:
            taken, self.counts = self.counts, {}
            other, self._other = self._other[0], [0]
            self._places = MOST_KEYS
            if not taken and not other:
                return True
            counts = {(*key, bits): kept for key, own in list(taken.items()) for bits, kept in list(own.items())}
            if written(self.folder, counts, other, wait_s):
                return True
            self._back(taken, other)
            return False
        finally:
            self._writing.release()

    def _back(self, taken: dict[Any, dict[int, list[int]]], other: int) -> None:
        """Take back what could not be written."""
        self._other[0] += other
        for key, own in list(taken.items()):
            for more in list(own.values()):
                found, kept = self.place(key, more[HIGH])
                _add(kept, more)
                self._other[0] += 0 if found else more[COUNT] - 1

    def forget(self) -> None:
        """In a process just forked: the counts are the parent's, the writer is gone, and so may be a lock's holder."""
        self.counts, self._places, self._other = {}, MOST_KEYS, [0]
        self._writing, self._has_writer = allocate_lock(), False


class Question:
    """One question without its n: kernel, dtype, regime, shape, why it misses."""

    __slots__ = ("_counts", "_key", "_misses", "_own")

    def __init__(self, misses: Misses, key: Any) -> None:
        self._misses, self._key = misses, key
        self._counts: Any = None
        self._own: dict[int, list[int]] = {}

    def note(self, n: Any) -> None:
        """Count a miss at n; what is no n is none."""
        try:
            if self._counts is not self._misses.counts:
                raise LookupError
            kept = self._own[n.bit_length()]
            kept[0] += 1
            if n < kept[1]:
                kept[1] = n
            elif n > kept[2]:
                kept[2] = n
        except Exception:  # the first one since a write, or an n that is no int
            self._first(n)

    def _first(self, n: Any) -> None:
        try:
            n = index(n)
            if 0 < n <= MOST_N:
                counts = self._misses.counts
                own, kept = self._misses.place(self._key, n)
                _add(kept, [1, n, n, int(time()), int(time())])
                self._own, self._counts = own, counts
        except Exception:  # a server must get an answer whatever it hands in
            return


def _add(kept: list[int], more: list[int]) -> None:
    kept[COUNT] += more[COUNT]
    kept[LOW], kept[HIGH] = min(kept[LOW], more[LOW]), max(kept[HIGH], more[HIGH])
    kept[FIRST], kept[LAST] = min(kept[FIRST], more[FIRST]), max(kept[LAST], more[LAST])


def _is_name(word: Any) -> bool:
    return isinstance(word, str) and len(word) <= MOST_TEXT and word.replace("-", "_").isidentifier()


def _is_axis(axis: tuple[Any, Any]) -> bool:
    name, value = axis
    return _is_name(name) and isinstance(value, int) and abs(value) <= MOST_N


_all: dict[str, Misses] = {}


def of(folder: str) -> Misses:
    """The counts of this process for a machine's folder."""
    if not _all:
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork)
    return _all.setdefault(folder, Misses(folder))


def _at_exit() -> None:
    for one in list(_all.values()):
        one.flush(WAIT_AT_EXIT_S)


def _after_fork() -> None:
    for one in list(_all.values()):
        one.forget()


# --- the file ---


def written(folder: str, counts: Counts, other: int, wait_s: float) -> bool:
    """Add counts to a folder's file; False where that cannot be, for whatever reason."""

    def merged(old: Counts, others: int) -> tuple[Counts, int]:
        for key, kept in counts.items():
            if key in old:
                _add(old[key], kept)
            else:
                old[key] = kept
        return old, others + other

    return update(folder, merged, wait_s)


def update(folder: str, change: Callable[[Counts, int], tuple[Counts, int]], wait_s: float = WAIT_S) -> bool:
    """Change what the file has, under its lock, by replacing it.

    Args:
        folder: of the machine; made where it is not there.
        change: from (counts, others) in the file to those that it shall have.
        wait_s: how long to wait for another process.

    Returns:
        Whether it was done: not on a read-only or full disk, or where another process holds the lock for longer.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        lock = _locked(os.path.join(folder, f"{NAME}.lock"), wait_s)
        if lock is None:
            return False
        try:
            _replace(folder, *_bounded(*change(*read(folder))))
        finally:
            os.close(lock)
        return True
    except Exception:  # whatever a disk or an old file brings, a server goes on
        return False


def _locked(path: str, wait_s: float) -> int | None:
    """A descriptor that holds the lock, None where another process holds it too long."""
    from fcntl import LOCK_EX, LOCK_NB, flock

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    until = time() + wait_s
    while True:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            return descriptor
        except OSError:
            if time() >= until:
                os.close(descriptor)
                return None
            sleep(0.01)


def _bounded(counts: Counts, other: int) -> tuple[Counts, int]:
    """The questions asked most often, as many as the file may have; the others go to `other`."""
    order = sorted(counts.items(), key=lambda item: -item[1][COUNT])
    return dict(order[:MOST_KEYS]), other + sum(kept[COUNT] for _, kept in order[MOST_KEYS:])


def _replace(folder: str, counts: Counts, other: int) -> None:
    import json

    misses = []
    for (kernel, dtype, regime, shape, why, _), kept in counts.items():
        asked = {"kernel": kernel, "dtype": dtype, "regime": regime, "shape": dict(shape), "why": why}
        figures = dict(zip(("count", "low", "high", "first", "last"), kept, strict=True))
        misses.append({**asked, **figures})
    text = json.dumps({"schema": SCHEMA, "misses": misses, "other": other}, indent=1)
    path = os.path.join(folder, NAME)
    scratch = f"{path}.new"  # the lock makes it ours; one left by a killed writer is overwritten
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(scratch, path)
    except BaseException:
        if os.path.exists(scratch):
            os.unlink(scratch)
        raise


def read(folder: str) -> tuple[Counts, int]:
    """What a folder's file has, and the others that were counted together; nothing where it cannot be read."""
    import json

    try:
        path = os.path.join(folder, NAME)
        if os.path.getsize(path) > MOST_BYTES:
            return {}, 0
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["schema"].rpartition(".")[0] != SCHEMA.rpartition(".")[0]:
            return {}, 0
        found: Counts = {}
        for one in document["misses"][:MOST_KEYS]:
            key, kept = _parsed(one)
            found[key] = kept
        return found, max(0, int(document["other"]))
    except Exception:  # a file that makes no sense is begun anew
        return {}, 0


def _parsed(one: dict[str, Any]) -> tuple[Key, list[int]]:
    question = Misses("").question(one["kernel"], {**one["shape"], "dtype": one["dtype"], "regime": one["regime"]}, "")
    kept = [index(one[name]) for name in ("count", "low", "high", "first", "last")]
    if question is None or not 0 < kept[LOW] <= kept[HIGH] <= MOST_N or kept[COUNT] < 1:
        raise ValueError("no miss")
    shape = tuple(sorted(one["shape"].items()))
    return (one["kernel"], one["dtype"], one["regime"], shape, str(one["why"]), kept[HIGH].bit_length()), kept
