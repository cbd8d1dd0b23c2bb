"""One tuner at a time on a machine: an advisory lock that every user of the machine can see, and who holds it.

The lock is the kernel's (flock): it ends with the process that holds it, however that ends, so no lock is ever stale.
Its files are empty and stay. They are taken in every folder of FOLDERS that can be used, because a service may have
a /tmp of its own. Containers wait for each other only where they share such a folder, or one named by ADVISOR_LOCK.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import stat
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from advisor import paths
from advisor.errors import BadInput, Busy

if TYPE_CHECKING:
    from advisor.search.request import Progress

FOLDERS = ("/dev/shm", "/tmp")
"""Where every user of a machine may make a file."""

NAME = "advisor-tuner.lock"

TUNER_WAIT_S = 3600.0
"""How long a second tuner waits for the first: two that measure at once would measure each other."""

LOOK_AGAIN_S = 0.2
"""How often a waiting tuner tries again."""

COMMAND_CHARACTERS = 100
"""How much of a holder's command line a message carries."""


class Holder(NamedTuple):
    """Who holds a lock; None what cannot be told. `started`: seconds since 1970; `stopped`: it stands still."""

    pid: int | None
    user: str | None
    started: float | None
    command: str | None
    stopped: bool


UNSEEN = Holder(None, None, None, None, False)
"""A holder in another container, or on a machine that hides the processes of others."""


@contextlib.contextmanager
def alone(progress: Progress, wait_s: float = TUNER_WAIT_S) -> Iterator[None]:
    """Hold the machine: one tuner at a time. The lock ends with the process, however that ends.

    Args:
        progress: told who is being waited for.
        wait_s: how long to wait.

    Raises:
        Busy: another tuner held it for all of that time; the message names who.
        BadInput: no lock can be had in the folder that ADVISOR_LOCK names.
    """
    files = _files()
    try:
        holder = _take(files)
        if holder is not None:
            progress.stage(f"waiting: another tuner is measuring on this machine: {words(holder)}", None)
            _wait(files, wait_s)
        yield
    finally:
        for descriptor in files:
            os.close(descriptor)


def _wait(files: Sequence[int], wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while (holder := _take(files)) is not None:
        if time.monotonic() >= until:
            end = f"end it (kill {holder.pid})" if holder.pid else "end it"
            next_step = f"wait for it, or {end}; ADVISOR_LOCK names another folder for the lock"
            raise Busy("one tuner measures at a time", got=words(holder), next_step=next_step)
        time.sleep(min(LOOK_AGAIN_S, max(0.0, until - time.monotonic())))


def words(holder: Holder) -> str:
    """Who holds it, for people: process, user, since when, command, and what to do about one that stands still."""
    if holder.pid is None:
        return "a process that cannot be seen from here (in another container, or hidden)"
    parts = [f"process {holder.pid}"]
    parts += [f"of user {holder.user}"] if holder.user else []
    parts += [f"since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(holder.started))}"] if holder.started else []
    parts += [f"`{holder.command}`"] if holder.command else []
    parts += [f"which is stopped: let it go on (kill -CONT {holder.pid}) or end it"] if holder.stopped else []
    return ", ".join(parts)


# --- the files ---


def _files() -> list[int]:
    """Descriptors of the lock's files, at least one."""
    own = os.environ.get("ADVISOR_LOCK")
    if own:
        with contextlib.suppress(OSError):
            os.makedirs(own, exist_ok=True)
    opened = [found for found in map(_opened, (own,) if own else FOLDERS) if found is not None]
    if not opened and own:
        next_step = "name another folder, or unset ADVISOR_LOCK"
        raise BadInput("the folder of the tuners' lock must be one to lock a file in", got=own, next_step=next_step)
    if not opened:  # nothing that all users share can be used: this user's own tuners still wait for each other
        last = _opened(paths.writable(paths.state_dir()))
        opened = [] if last is None else [last]
    return opened


def _opened(folder: str) -> int | None:
    """The lock's file of a folder for reading, made where it is not there; None where that cannot be.

    A lock needs no more than reading, so a file of another user's, or in a folder that is read-only by now, will do.
    """
    path, flags = os.path.join(folder, NAME), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for more in (0, os.O_CREAT | os.O_EXCL, 0):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, flags | more, 0o444)
            if more:
                os.fchmod(descriptor, 0o444)  # for the other users, whatever this one's umask says
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and _can_lock(descriptor):
                return descriptor
            os.close(descriptor)
            return None
    return None


def _can_lock(descriptor: int) -> bool:
    """Whether the file system has locks at all: some network disks do not."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
    return True


def _take(files: Sequence[int]) -> Holder | None:
    """Take all, or none and say who holds one. None: taken."""
    for i, descriptor in enumerate(files):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            for taken in files[:i]:
                fcntl.flock(taken, fcntl.LOCK_UN)
            return holder_of(descriptor)
    return None


# --- who holds it ---


def holder_of(descriptor: int, proc: str = "/proc") -> Holder:
    """Who holds the lock on an open file, as the kernel tells.

    Source: proc(5), /proc/locks: number, kind, mode, access, process id, major:minor:inode, range.
    """
    file = os.fstat(descriptor)
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    found: dict[str, int] = {}
    for line in paths.text_of(os.path.join(proc, "locks")).splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[4].isdigit():
            found.setdefault(fields[5], int(fields[4]))
    # layered file systems report another device there than to stat: the inode then has to do
    same_inode = [pid for where, pid in found.items() if where.rpartition(":")[2] == str(file.st_ino)]
    pid = found.get(device, same_inode[0] if same_inode else 0)
    return _process(pid, proc) if pid else UNSEEN


def _process(pid: int, proc: str) -> Holder:
    folder = os.path.join(proc, str(pid))
    fields = paths.text_of(os.path.join(folder, "stat")).rpartition(")")[2].split()
    raw = paths.text_of(os.path.join(folder, "cmdline")).replace("\0", " ")
    shown = "".join(sign if sign.isprintable() else "?" for sign in raw).strip()
    command = shown if len(shown) <= COMMAND_CHARACTERS else f"{shown[:COMMAND_CHARACTERS]}..."
    started = _since(fields, proc)
    return Holder(pid, _user(folder), started, command or None, fields[:1] in (["T"], ["t"]))


def _since(fields: Sequence[str], proc: str) -> float | None:
    """When a process began. Source: proc(5), /proc/pid/stat field 22 in clock ticks, /proc/stat btime."""
    booted = [
        line.split()[1] for line in paths.text_of(os.path.join(proc, "stat")).splitlines() if line.startswith("btime ")
    ]
    if len(fields) < 20 or not booted:
        return None
    return int(booted[0]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _user(folder: str) -> str | None:
    try:
        owner = os.stat(folder).st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)
