"""A machine as an archive: the files that the probe reads, and no others, so that an odd machine becomes a test.

What is written is what the probe uses of each file: serial numbers, host and user names, container ids and process
details never enter. The archive unpacks to one folder that `advisor probe --sysroot` describes as the same machine;
that is tried before it is published.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from advisor import identity
from advisor.errors import AdvisorError, BadInput
from advisor.records import Machine
from advisor.topology import files, limits, lscpu, probe

ENDINGS = (".tar.gz", ".tgz")
SAME = (
    *("hardware_id", "limits_id", "architecture", "vendor", "model_name", "isa", "online_cpus", "offline_cpus"),
    *("allowed_cpus", "allowed_mems", "cpu_quota", "memory_limit_bytes", "sockets", "cores", "threads_per_core"),
    *("array", "groupings", "numa_nodes", "l3_groups", "caches", "core_classes"),
)
"""Fields that the unpacked archive must give again."""

_SHARED_MODE = 0o644


class Recorded(NamedTuple):
    """`path` of the archive, `files` in it, `differs`: fields that the unpacked archive tells otherwise, if any."""

    path: str
    files: int
    differs: tuple[str, ...]


def record(path: str, root: str = "/") -> Recorded:
    """Write the archive of a machine.

    Args:
        path: a new file that ends in one of ENDINGS; its name without the ending is the folder inside.
        root: `/`, or a recorded tree to record once more.

    Raises:
        BadInput: another ending, or the file is there already.
        AdvisorError: the folder cannot be written to.
    """
    name = _stem(path)
    machine, seen = watched(root)
    kept = cleaned(seen, root)
    with tempfile.TemporaryDirectory() as folder:
        for inner, text in kept.items():
            _put(os.path.join(folder, inner), text)
        again = probe.topology(folder)
    publish(path, archive(name, kept))
    differs = tuple(field for field in SAME if getattr(again, field) != getattr(machine, field))
    return Recorded(path, sum(text is not None for text in kept.values()), differs)


def _stem(path: str) -> str:
    base = os.path.basename(path)
    ending = next((ending for ending in ENDINGS if base.endswith(ending) and base != ending), None)
    if ending is None:
        raise BadInput("an archive's name must end as archives do", got=path, allowed=", ".join(ENDINGS))
    if os.path.lexists(path):
        raise BadInput("an archive is never overwritten", got=path, next_step="name a new file")
    return base.removesuffix(ending)


# --- what is read ---

Texts = dict[str, str | None]
"""Path below the root -> text, None for a folder that was listed and may hold nothing else."""


def watched(root: str) -> tuple[Machine, Texts]:
    """The topology of a machine, and every file that was read for it."""
    with _watching() as seen:
        machine = probe.topology(root)
    found: Texts = {os.path.relpath(path, root): text for path, text in seen.items()}
    if root == "/":
        found["sys/kernel/cpu_byteorder"] = files.text("/sys/kernel/cpu_byteorder") or ""
        found["proc/sys/kernel/osrelease"] = f"{identity.kernel_release() or ''}\n"
        found[identity.RECORDED_POLICY] = f"{identity.memory_policy_allowed()}\n"
        found["proc/self/status"] = _status(machine)
    for options, name in ((lscpu.TABLE, "lscpu.csv"), (lscpu.SUMMARY, "lscpu.json")):
        said = lscpu.run(options) if root == "/" else lscpu.recorded(root)(options)
        if said:
            found[f"{lscpu.WITNESS}/{name}"] = said
    return machine, found


@contextlib.contextmanager
def _watching() -> Iterator[Texts]:
    """Every text that `files` reads meanwhile; the longest where one file is read more than once."""
    before, files.seen = files.seen, {}
    try:
        yield files.seen
    finally:
        files.seen = before


def _status(machine: Machine) -> str:
    """What /proc/self/status would say: the mask is the one that counted, not that of a bound thread."""
    mems = "" if machine.allowed_mems is None else f"Mems_allowed_list:\t{files.span(machine.allowed_mems)}\n"
    return f"Cpus_allowed_list:\t{files.span(machine.allowed_cpus)}\n{mems}"


# --- what is kept of it ---

_CPUINFO = re.compile(
    r"(processor|vendor|vendor_id|mvendorid|model name|cpu implementer|cpu part|cpu variant|cpu|uarch|isa|flags"
    r"|features|arch|cpu family|revision|processor \d+)",
    re.IGNORECASE,
)
"""Keys that the probe reads."""

_SUMMARY = re.compile(
    r"(architecture|cpu\(s\)|on-line cpu\(s\) list|vendor id|model name|.* per core|.* per socket|socket\(s\)|numa .*"
    r"|l[123][di]? cache)",
)

_CONTROLLERS = {"rw", "ro", "cpu", "cpuacct", "cpuset", "memory"}


def cleaned(seen: Mapping[str, str | None], root: str) -> Texts:
    """Of every file what the probe uses, with the names of control groups replaced by numbers."""
    groups = _Groups(root)
    kept: Texts = {}
    for path, text in sorted(seen.items()):
        keep = next((verb for pattern, verb in _KEEP if re.fullmatch(pattern, path)), _as_is)
        new = text if text is None else groups.text(path, text) if path in _Groups.FILES else keep(text)
        if new is None or new.strip() or keep is _as_is:
            kept[groups.path(path)] = new
    return kept


def _as_is(text: str) -> str:
    return text


def _cpuinfo(text: str) -> str:
    """Lines with keys that are known; s390 writes a serial number into each processor's line."""
    lines = (line for line in text.splitlines() if not line.strip() or _CPUINFO.fullmatch(_key(line)))
    return re.sub(r"identification = \w+", "identification = 0", "\n".join(lines)) + "\n"


def _key(line: str) -> str:
    return " ".join(line.partition(":")[0].split())


def _lines(pattern: str) -> Callable[[str], str]:
    wanted = re.compile(pattern)

    def keep(text: str) -> str:
        return "".join(f"{line}\n" for line in text.splitlines() if wanted.match(line))

    return keep


def _summary(text: str) -> str:
    """lscpu's summary, flat, with the labels that the probe reads; text that is no JSON is left out."""
    try:
        labels = lscpu.labels(json.loads(text))
    except ValueError:
        return ""
    kept = [{"field": f"{name}:", "data": data} for name, data in labels.items() if _SUMMARY.fullmatch(name)]
    return json.dumps({"lscpu": kept}, indent=1) + "\n"


_KEEP: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("proc/cpuinfo", _cpuinfo),
    ("proc/self/status", _lines(r"(Cpus|Mems)_allowed")),
    ("proc/sys/kernel/osrelease", lambda text: ".".join(text.split("-")[0].split(".")[:2]).strip() + "\n"),
    ("proc/meminfo|.*/node/node[0-9]+/meminfo", _lines(r".*MemTotal:")),
    (f"{lscpu.WITNESS}/lscpu.csv", _lines(r"[#0-9,:\s-][\w #,:-]*$")),
    (f"{lscpu.WITNESS}/lscpu.json", _summary),
)


USUAL = ("/sys/fs/cgroup", "/cgroup", "/dev/cpuset")
"""Where control groups are mounted by those who follow the documents."""


class _Groups:
    """Control groups under other names: paths name users, jobs and containers."""

    FILES = ("proc/self/mountinfo", "proc/self/mounts", "proc/mounts", "proc/self/cgroup", "proc/self/cpuset")

    def __init__(self, root: str) -> None:
        self.mounts = limits.mounts(root)
        paths = limits.paths(root)
        parts = [part for path in (*paths.values(), *(m.top for m in self.mounts)) for part in path.split("/")]
        real = dict.fromkeys(part for part in parts if part not in ("", ".."))
        self.names = {part: f"group{index}" for index, part in enumerate(real, 1)}
        self.groups = paths
        odd = (m.point for m in self.mounts if not m.point.startswith(USUAL))
        self.points = {point: f"/mnt/mount{index}" for index, point in enumerate(odd, 1)}

    def point(self, point: str) -> str:
        """A mount point, an unusual one under another name: it may lie in somebody's home."""
        return self.points.get(point, point)

    def renamed(self, path: str) -> str:
        """A group's path under its other name."""
        return "/".join(self.names.get(part, part) for part in path.split("/"))

    def path(self, path: str) -> str:
        """Where a file lies in the archive."""
        for mount in sorted(self.mounts, key=lambda mount: -len(mount.point)):  # the innermost mount holds the file
            point = mount.point.strip("/")
            if path.startswith(f"{point}/"):
                return f"{self.point(mount.point).strip('/')}/{self.renamed(path[len(point) + 1 :])}"
        return path

    def text(self, path: str, text: str) -> str:
        """A file that speaks of groups, written anew from what the probe reads of it."""
        if path == "proc/self/cpuset":
            return f"{self.renamed(text.strip())}\n"
        if path == "proc/self/cgroup":
            return "".join(f"0:{name}:{self.renamed(group)}\n" for name, group in self.groups.items())
        if path == "proc/self/mountinfo":
            return "".join(
                f"1 1 0:1 {self.renamed(m.top)} {_escape(self.point(m.point))} rw - {m.kind} {m.kind} "
                f"{_options(m.options)}\n"
                for m in self.mounts
            )
        return "".join(
            f"{m.kind} {_escape(self.point(m.point))} {m.kind} {_options(m.options)} 0 0\n" for m in self.mounts
        )


def _escape(path: str) -> str:
    return path.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")


def _options(options: tuple[str, ...]) -> str:
    return ",".join(option for option in options if option in _CONTROLLERS) or "rw"


# --- the archive ---


def _put(path: str, text: str | None) -> None:
    os.makedirs(path if text is None else os.path.dirname(path), exist_ok=True)
    if text is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def archive(name: str, kept: Mapping[str, str | None]) -> bytes:
    """A compressed archive with everything under one folder; no owner, no time, so that equal trees are equal bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for inner, text in sorted(kept.items()):
            entry = tarfile.TarInfo(f"{name}/{inner}")
            if text is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
                continue
            body = text.encode()
            entry.size, entry.mode = len(body), _SHARED_MODE
            tar.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def publish(path: str, body: bytes) -> None:
    """A new file, whole or not at all.

    Raises:
        BadInput: the file has appeared meanwhile.
        AdvisorError: the folder cannot be written to.
    """
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # refuses a file that is there, which a rename would replace
    except FileExistsError as error:
        raise BadInput("an archive is never overwritten", got=path, next_step="name a new file") from error
    except OSError as error:
        raise AdvisorError("the archive cannot be written", got=path, next_step=str(error.strerror)) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
