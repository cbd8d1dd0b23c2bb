"""What the process may use: CPUs, memory nodes, CPU quota, memory. Read anew whenever it is asked for.

A bandwidth quota is invisible to the affinity mask and to `os.cpu_count`; only the control group files show it, and any
ancestor may hold the one that binds. Version 1, version 2 and hybrid mounts are understood. Everything takes a root
folder. Standard library only, and no `typing` or `re`: the hot path imports this module.

Source: Linux Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
from collections import namedtuple

from advisor.topology.files import parse_list, parse_mask, raw, span, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import NamedTuple

    Ids = tuple[int, ...]

    class Limits(NamedTuple):  # noqa: D101 (documented below, where it is made)
        allowed_cpus: Ids | None
        allowed_mems: Ids | None
        cpu_quota: float | None
        memory_limit_bytes: int | None
        warnings: tuple[str, ...]

    class Mount(NamedTuple):  # noqa: D101 (documented below, where it is made)
        top: str
        point: str
        kind: str
        options: tuple[str, ...]
else:
    Limits = namedtuple("Limits", "allowed_cpus allowed_mems cpu_quota memory_limit_bytes warnings")
    Limits.__doc__ = """Limits on the process; None: not limited, or (recorded trees) not told.

    allowed_cpus, allowed_mems: ids; cpu_quota: CPUs' worth of time; memory_limit_bytes: the least over all ancestors.
    """
    Mount = namedtuple("Mount", "top point kind options")
    Mount.__doc__ = "A mounted control group hierarchy. top: the group that is seen at `point`."


def affinity() -> Ids | None:
    """The affinity mask of the calling thread, None on a platform that has none."""
    ask = getattr(os, "sched_getaffinity", None)
    return tuple(sorted(ask(0))) if ask else None


LAUNCH = affinity()
"""The mask when this module was first imported: what the process was launched with, as long as no library loaded before
has narrowed it. A library that binds the calling thread (see BINDERS) does so when it is loaded."""

BINDERS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables that let an OpenMP runtime bind the thread that loads it, to one CPU in general."""

UNLIMITED_BYTES = 1 << 60
"""Version 1 writes no limit as the largest page-aligned 63-bit number; nothing has an exbibyte."""


def read(root: str = "/") -> Limits:
    """The limits under a root folder; for `/` the affinity mask is asked from the kernel (calling thread).

    Where a library has bound the calling thread since, the mask at launch counts, and a warning says so.
    """
    status = _status(root)
    mask, notes = _launched(affinity(), LAUNCH) if root == "/" else (_ids(status, "Cpus_allowed"), ())
    tops, groups = mounts(root), paths(root)
    cpus, warnings = _meet(mask, _cpuset(root, tops, groups, "cpus"))
    mems, _ = _meet(_ids(status, "Mems_allowed"), _cpuset(root, tops, groups, "mems"))
    quota = _least(_quotas(root, tops, groups))
    memory = _least(_memory_limits(root, tops, groups))
    return Limits(cpus, mems, quota, None if memory is None else int(memory), notes + warnings)


def watch() -> Callable[[], tuple[Ids, float | None]]:
    """A quick look at what can change under a running process, for use around every trial: tens of microseconds.

    Where the control groups are is found once; a process that is moved to another group is not followed.

    Returns:
        A function that gives (affinity mask met with the effective cpuset, CPU quota or None) as they are now.
    """
    tops, groups = mounts("/"), paths("/")
    quotas = [
        (kind, folder) for kind, folder in _folders("/", tops, groups, "cpu") if os.path.isfile(_file(kind, folder))
    ]
    sets = _cpuset_file(tops, groups)

    def look() -> tuple[Ids, float | None]:
        mask = affinity() or ()
        group = parse_list(text(sets) or "") if sets else None
        found = [quota for quota in (_quota(kind, folder) for kind, folder in quotas) if quota]
        return _meet(mask, group or None)[0] or mask, min(found, default=None)

    return look


def budget(limits: Limits, cpus: int) -> int:
    """CPUs that the limits pay for: the least of the mask and the floor of the quota, at least 1.

    The floor, since one thread more than the quota pays for throttles every barrier.

    Args:
        limits: what `read` gave.
        cpus: how many CPUs there are to use where the mask is not told.
    """
    reach = cpus if limits.allowed_cpus is None else len(limits.allowed_cpus)
    return max(1, reach if limits.cpu_quota is None else min(reach, int(limits.cpu_quota)))


# --- what the process says of itself ---


def _launched(now: Ids | None, launch: Ids | None) -> tuple[Ids | None, tuple[str, ...]]:
    """The mask that counts: the one at launch where an OpenMP runtime has narrowed it since, else the one now."""
    binders = [name for name in BINDERS if os.environ.get(name, "false").strip().lower() not in ("", "false")]
    if not binders or now is None or launch is None or not set(now) < set(launch):
        return now, ()
    return launch, (
        f"{binders[0]} has bound this thread to CPUs {span(now)}; the mask at launch counts: {span(launch)}",
    )


def _status(root: str) -> dict[str, str]:
    lines = (raw(os.path.join(root, "proc/self/status")) or "").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _ids(status: dict[str, str], key: str) -> Ids | None:
    """The ids of a set, from its list, else from its mask; None where neither names any: a process runs somewhere."""
    return parse_list(status.get(f"{key}_list", "")) or parse_mask(status.get(key, "")) or None


def _meet(mask: Ids | None, group: Ids | None) -> tuple[Ids | None, tuple[str, ...]]:
    """The intersection; the mask where that is empty, since the process does run somewhere in it."""
    if mask is None or group is None:
        return (group if mask is None else mask), ()
    both = tuple(sorted(set(mask) & set(group)))
    if both:
        return both, ()
    return mask, (f"the affinity mask {span(mask)} and the control group's {span(group)} contradict: mask believed",)


# --- where its control groups are ---


def mounts(root: str) -> tuple[Mount, ...]:
    """Mounted hierarchies, from mountinfo, or from mounts where that is missing."""
    found = []
    for line in (raw(os.path.join(root, "proc/self/mountinfo")) or "").splitlines():
        left, _, right = line.partition(" - ")
        first, last = left.split(), right.split()
        if len(first) > 4 and len(last) > 1:
            found.append(Mount(_unescape(first[3]), _unescape(first[4]), last[0], tuple(last[-1].split(","))))
    if not found:
        listed = raw(os.path.join(root, "proc/self/mounts")) or raw(os.path.join(root, "proc/mounts")) or ""
        words = (line.split() for line in listed.splitlines())
        found = [Mount("/", _unescape(w[1]), w[2], tuple(w[3].split(","))) for w in words if len(w) > 3]
    return tuple(mount for mount in found if mount.kind in ("cgroup", "cgroup2", "cpuset"))


def _unescape(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def paths(root: str) -> dict[str, str]:
    """Controller -> the process' group in its hierarchy; the empty controller is version 2."""
    found: dict[str, str] = {}
    for line in (raw(os.path.join(root, "proc/self/cgroup")) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path
    cpuset = text(os.path.join(root, "proc/self/cpuset"))
    if cpuset:
        found.setdefault("cpuset", cpuset)
        if "" not in found and len(found) == 1:  # no cgroup file at all: the cpuset path is all that is known
            found[""] = cpuset
    return found


def _folders(root: str, mounts: Sequence[Mount], paths: dict[str, str], controller: str) -> Iterator[tuple[str, str]]:
    """(kind of mount, folder) of the process' group and of all its ancestors that can be seen, innermost first."""
    for mount in mounts:
        if mount.kind == "cgroup" and controller not in mount.options:
            continue
        if mount.kind == "cpuset" and controller != "cpuset":
            continue
        path = paths.get("" if mount.kind == "cgroup2" else controller, "/")
        parts = _below(path, mount.top)
        base = os.path.join(root, mount.point.lstrip("/"))
        for depth in range(len(parts), -1, -1):
            yield mount.kind, os.path.join(base, *parts[:depth])


def _below(path: str, top: str) -> list[str]:
    """The parts of a group's path below the group that is mounted; none when it lies elsewhere (a namespace)."""
    parts = [part for part in path.split("/") if part]
    above = [part for part in top.split("/") if part]
    if ".." in parts or parts[: len(above)] != above:
        return []
    return parts[len(above) :]


# --- what its control groups say ---


def _cpuset(root: str, mounts: Sequence[Mount], paths: dict[str, str], what: str) -> Ids | None:
    """The innermost control group that says which CPUs (or mems) are effective. None when none says."""
    return next((ids for _, ids in _cpusets(root, mounts, paths, what)), None)


def _cpuset_file(mounts: Sequence[Mount], paths: dict[str, str]) -> str | None:
    return next((path for path, _ in _cpusets("/", mounts, paths, "cpus")), None)


def _cpusets(root: str, mounts: Sequence[Mount], paths: dict[str, str], what: str) -> Iterator[tuple[str, Ids]]:
    """(file, ids) of every control group that says, innermost first."""
    stems = {
        "cgroup2": (f"cpuset.{what}.effective", f"cpuset.{what}"),
        "cgroup": (f"cpuset.effective_{what}", f"cpuset.{what}", what),
        "cpuset": (f"effective_{what}", what, f"cpuset.{what}"),
    }
    for kind, folder in _folders(root, mounts, paths, "cpuset"):
        for stem in stems[kind]:
            path = os.path.join(folder, stem)
            found = text(path)
            ids = parse_list(found) if found else None
            if ids:
                yield path, ids


def _quotas(root: str, mounts: Sequence[Mount], paths: dict[str, str]) -> Iterator[float]:
    for kind, folder in _folders(root, mounts, paths, "cpu"):
        quota = _quota(kind, folder)
        if quota is not None:
            yield quota


def _file(kind: str, folder: str) -> str:
    """Where one group keeps its quota."""
    return os.path.join(folder, "cpu.max" if kind == "cgroup2" else "cpu.cfs_quota_us")


def _quota(kind: str, folder: str) -> float | None:
    """CPUs' worth of time that one group allows, None for no limit."""
    words = (text(_file(kind, folder)) or "max").split()
    quota, period = words[0] if words else "max", words[1] if len(words) > 1 else "100000"
    if kind != "cgroup2":
        period = text(os.path.join(folder, "cpu.cfs_period_us")) or "100000"
    if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
        return int(quota) / int(period)
    return None


def _memory_limits(root: str, mounts: Sequence[Mount], paths: dict[str, str]) -> Iterator[float]:
    for kind, folder in _folders(root, mounts, paths, "memory"):
        found = text(os.path.join(folder, "memory.max" if kind == "cgroup2" else "memory.limit_in_bytes")) or "max"
        if found.isdigit() and int(found) < UNLIMITED_BYTES:
            yield int(found)


def _least(values: Iterator[float]) -> float | None:
    return min(values, default=None)
