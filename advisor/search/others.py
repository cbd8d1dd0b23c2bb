"""Who else uses this machine, looked at for a moment before anything is measured."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from advisor.records import Pairs, pairs
from advisor.words import many

STEAL, OTHERS, DELAY = 0.01, 0.05, 0.10
"""Above these a machine is not quiet: 1 % of steal hides a 1 % difference, a twentieth of all CPUs' time is a busy core
of twenty, and where tasks wait for a CPU a tenth of the time ours will wait too."""

LOOK_S = 0.3
"""How long is looked: thirty ticks of the kernel's clock a CPU."""

NAMED, LEAST_NAMED = 3, 0.05
"""At most so many users are named, each with at least this much of one CPU."""


class Stat(NamedTuple):
    """Seconds since the start, all CPUs together: what ran, what was stolen, all; and what this program used."""

    busy: float
    stolen: float
    total: float
    own: float


class User(NamedTuple):
    """A process name, how many processes have it, and how many CPUs they kept busy together."""

    name: str
    processes: int
    cpus: float


class Others(NamedTuple):
    """What was going on.

    Attributes:
        steal, others: share of the time of the CPUs in reach that the hypervisor took, and that other processes used.
        delay: share of the time in which some task waited for a CPU (pressure stall information).
        load_1min: mean number of runnable processes over the last minute.
        users: the busiest processes that can be seen from here.
        reasons: why the machine is not quiet; empty when it is.
    """

    steal: float | None
    others: float | None
    delay: float | None
    load_1min: float | None
    users: tuple[User, ...]
    reasons: tuple[str, ...]


class _Seen(NamedTuple):
    at_s: float
    stat: Stat | None
    stalled_s: float | None
    processes: dict[int, tuple[str, float]]


def look(
    root: str = "/", sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> Others:
    """Look for a moment at who uses the machine while this program does nothing.

    Args:
        root: folder that /proc is read under.
        sleep, clock: in seconds; others in tests.
    """
    before = _seen(root, clock())
    sleep(LOOK_S)
    return judge(before, _seen(root, clock()), load(root))


def judge(before: _Seen, after: _Seen, load_1min: float | None) -> Others:
    """What two readings say about the time between them."""
    span_s = max(1e-9, after.at_s - before.at_s)
    steal = others = None
    if before.stat and after.stat and after.stat.total > before.stat.total:
        span = after.stat.total - before.stat.total
        steal = max(0.0, after.stat.stolen - before.stat.stolen) / span
        busy = (after.stat.busy - before.stat.busy) - (after.stat.own - before.stat.own)
        others = max(0.0, busy) / span
    delay = None
    if before.stalled_s is not None and after.stalled_s is not None:
        delay = max(0.0, after.stalled_s - before.stalled_s) / span_s
    users = _users(before, after, span_s)
    reasons = _reasons(steal, others, delay, users)
    return Others(_rounded(steal), _rounded(others), _rounded(delay), load_1min, users, reasons)


def _reasons(
    steal: float | None, others: float | None, delay: float | None, users: tuple[User, ...]
) -> tuple[str, ...]:
    named = ", ".join(
        f"{user.name}{f' x{user.processes}' if user.processes > 1 else ''} {many(float(f'{user.cpus:.2g}'), 'CPU')}"
        for user in users
    )
    told = (
        (steal, STEAL, "{:.1%} of the CPUs' time is stolen by the hypervisor"),
        (
            others,
            OTHERS,
            "{:.1%} of the CPUs' time is used by others " + f"({named or 'none that can be seen from here'})",
        ),
        (delay, DELAY, "{:.0%} of the time some task waits for a CPU"),
    )
    return tuple(words.format(share) for share, most, words in told if share is not None and share > most)


def _users(before: _Seen, after: _Seen, span_s: float) -> tuple[User, ...]:
    used: dict[str, float] = {}
    count: Counter[str] = Counter()
    for pid, (name, seconds) in after.processes.items():
        earlier = before.processes.get(pid, (name, 0.0))
        spent = seconds - earlier[1] if earlier[0] == name else 0.0
        if spent > 0 and pid != os.getpid():
            used[name] = used.get(name, 0.0) + spent
            count[name] += 1
    return tuple(
        User(name, count[name], round(seconds / span_s, 2))
        for name, seconds in sorted(used.items(), key=lambda pair: -pair[1])[:NAMED]
        if seconds / span_s >= LEAST_NAMED
    )


def sentence(found: Others) -> str:
    """What the user should know before tuning starts; empty on a quiet machine."""
    if not found.reasons:
        return ""
    load_words = "" if found.load_1min is None else f" (load {found.load_1min:g})"
    return f"this machine is not quiet{load_words}: {'; '.join(found.reasons)}"


def recorded(found: Others) -> Pairs:
    """The same for the log."""
    users = tuple(pairs(user._asdict()) for user in found.users)
    return pairs({**found._asdict(), "users": tuple(dict(user) for user in users)})


# --- reading ---


def stat(root: str = "/", cpus: Collection[int] = ()) -> Stat | None:
    """The counters now, None where they are not told.

    Args:
        root: folder that /proc is read under.
        cpus: these alone, where each has a line of its own; none: all.

    Children count once they have been waited for. Source: proc(5), /proc/stat: user nice system idle iowait irq softirq
    steal; guest time is in user already.
    """
    try:
        with open(os.path.join(root, "proc/stat"), encoding="utf-8") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
        own = {f"cpu{cpu}" for cpu in cpus}
        rows = [line[1:9] for line in lines if line[0] in own] or [line[1:9] for line in lines[:1]]
        words = [sum(map(int, column)) for column in zip(*rows, strict=True)]
    except (OSError, ValueError):
        return None
    if len(words) < 8:
        return None
    tick, times = os.sysconf("SC_CLK_TCK"), os.times()
    idle, stolen = words[3] + words[4], words[7]
    return Stat((sum(words) - idle - stolen) / tick, stolen / tick, sum(words) / tick, sum(times[:4]))


def load(root: str = "/") -> float | None:
    """Mean number of runnable processes over the last minute."""
    try:
        with open(os.path.join(root, "proc/loadavg"), encoding="utf-8") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _seen(root: str, at_s: float) -> _Seen:
    return _Seen(at_s, stat(root, os.sched_getaffinity(0)), _stalled_s(root), _processes(root))


def _stalled_s(root: str) -> float | None:
    """Seconds in which some task waited for a CPU. Source: psi.rst of the kernel, total in us."""
    try:
        with open(os.path.join(root, "proc/pressure/cpu"), encoding="utf-8") as file:
            words = file.readline().split()
        return float(next(word for word in words if word.startswith("total="))[6:]) * 1e-6
    except (OSError, ValueError, StopIteration):
        return None


def _processes(root: str) -> dict[int, tuple[str, float]]:
    """Process id -> name and CPU seconds used; only what can be seen from here."""
    found = {}
    tick = os.sysconf("SC_CLK_TCK")
    try:
        pids = [int(name) for name in os.listdir(os.path.join(root, "proc")) if name.isdecimal()]
    except OSError:
        return {}
    for pid in pids:
        try:
            with open(os.path.join(root, "proc", str(pid), "stat"), encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            words = rest.split()
            found[pid] = name, (int(words[11]) + int(words[12])) / tick
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    return found


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
