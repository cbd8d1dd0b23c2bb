"""Small fake /proc and /sys trees: just the files that the probe reads, spelled as kernels spell them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

X86_HEAD = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Fake(R) CPU   @ 2.00GHz
flags\t\t: fpu lm sse4_2 avx avx2 fma f16c
"""


class Shape(NamedTuple):
    """A regular machine. `split`: threads of a core are numbered n apart, else side by side."""

    sockets: int = 1
    cores: int = 4
    smt: int = 1
    split: bool = True

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.smt

    def core(self, cpu: int) -> int:
        return cpu % (self.sockets * self.cores) if self.split else cpu // self.smt

    def siblings(self, cpu: int) -> list[int]:
        return [c for c in range(self.cpus) if self.core(c) == self.core(cpu)]

    def package(self, cpu: int) -> list[int]:
        return [c for c in range(self.cpus) if self.core(c) // self.cores == self.core(cpu) // self.cores]


def put(root: Path, path: str, text: str) -> None:
    """One file below the root."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def spell(cpus: Iterable[int]) -> str:
    """A plain list, no ranges."""
    return ",".join(map(str, sorted(cpus)))


def mask(cpus: Iterable[int]) -> str:
    """A mask in 32-bit words, highest first."""
    bits, words = sum(1 << cpu for cpu in cpus), []
    while bits or not words:
        words.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))


def cpu(root: Path, number: int, topology: Mapping[str, str]) -> None:
    """One cpuN folder with these topology files; none for an offline CPU."""
    (root / f"sys/devices/system/cpu/cpu{number}").mkdir(parents=True, exist_ok=True)
    for name, text in topology.items():
        put(root, f"sys/devices/system/cpu/cpu{number}/topology/{name}", text + "\n")


def cache(root: Path, number: int, index: int, facts: Mapping[str, str]) -> None:
    for name, text in facts.items():
        put(root, f"sys/devices/system/cpu/cpu{number}/cache/index{index}/{name}", text + "\n")


def machine(root: Path, shape: Shape, online: Sequence[int] | None = None) -> Path:
    """A whole machine: CPUs, sibling lists, one L3 and one NUMA node a socket, an x86 cpuinfo."""
    live = set(range(shape.cpus) if online is None else online)
    put(root, "sys/devices/system/cpu/online", spell(live) + "\n")
    put(root, "sys/devices/system/cpu/present", f"0-{shape.cpus - 1}\n")
    put(root, "proc/cpuinfo", X86_HEAD)
    for number in range(shape.cpus):
        if number not in live:
            cpu(root, number, {})
            continue
        package = [c for c in shape.package(number) if c in live]
        cpu(
            root,
            number,
            {
                "thread_siblings_list": spell(c for c in shape.siblings(number) if c in live),
                "core_siblings_list": spell(package),
                "physical_package_id": str(shape.core(number) // shape.cores),
                "core_id": str(shape.core(number) % shape.cores),
            },
        )
        shared = {"type": "Unified", "shared_cpu_list": spell(package)}
        cache(root, number, 0, {"level": "1", "type": "Data", "size": "32K"})
        cache(root, number, 3, {"level": "3", "size": "16M", **shared})
    for socket in range(shape.sockets):
        node(root, socket, [c for c in range(shape.cpus) if shape.core(c) // shape.cores == socket and c in live])
    return root


def node(root: Path, number: int, cpus: Iterable[int], memory_kb: int = 1024, distances: str = "") -> None:
    folder = f"sys/devices/system/node/node{number}"
    put(root, f"{folder}/cpulist", spell(cpus) + "\n")
    put(root, f"{folder}/meminfo", f"Node {number} MemTotal:       {memory_kb} kB\nNode {number} MemFree: 1 kB\n")
    if distances:
        put(root, f"{folder}/distance", distances + "\n")


def affinity(root: Path, cpus: str, mems: str = "0") -> None:
    put(root, "proc/self/status", f"Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n")


def cgroup2(root: Path, path: str, files: Mapping[str, str]) -> None:
    """A version 2 hierarchy at /sys/fs/cgroup with the process in `path`; files are relative to the mount."""
    put(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
    put(root, "proc/self/cgroup", f"0::{path}\n")
    for name, text in files.items():
        put(root, f"sys/fs/cgroup/{name}", text + "\n")


def cgroup1(root: Path, path: str, files: Mapping[str, str], top: str = "/") -> None:
    """Version 1 hierarchies (cpu, cpuset, memory) with the process in `path`; `top` is the group that is mounted."""
    lines = [
        f"3{i} 23 0:3{i} {top} /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        for i, name in enumerate(("cpu,cpuacct", "cpuset", "memory"))
    ]
    put(root, "proc/self/mountinfo", "\n".join(lines) + "\n")
    put(root, "proc/self/cgroup", f"4:memory:{path}\n3:cpu,cpuacct:{path}\n2:cpuset:{path}\n")
    for name, text in files.items():
        put(root, f"sys/fs/cgroup/{name}", text + "\n")


# --- a machine by its shape, and its oddities ---

LETTERS = {
    "d": "drawer",
    "b": "book",
    "s": "socket",
    "i": "die",
    "n": "numa",
    "l": "l3",
    "k": "cluster",
    "c": "core",
    "t": "smt",
}
"""Letter of a shape -> level. What a shape does not name, the tree does not have."""

STEMS = {
    "drawer": "drawer_siblings",
    "book": "book_siblings",
    "socket": "core_siblings",
    "die": "die_cpus",
    "cluster": "cluster_cpus",
    "core": "thread_siblings",
}
CPU = "sys/devices/system/cpu"


def build(root: Path, shape: str, *, offline: Iterable[int] = (), ids: Sequence[int] = (), adjacent=False) -> Path:
    """A machine such as `2s4n16c2t`: 2 sockets, 4 nodes in each, 16 cores in each of those, 2 threads in each core.

    Letters stand outermost first, so `2s1l2n4c` has its L3 outside the nodes; see LETTERS.

    Args:
        offline: ids that the kernel has taken down: present, with a folder, without topology or caches.
        ids: the CPU ids to use instead of 0, 1, 2 ..., in that order: sparse or interleaved numbers.
        adjacent: threads of a core are numbered side by side; else thread k of every core comes before thread k + 1.
    """
    levels = [(LETTERS[letter], int(count)) for count, letter in re.findall(r"(\d+)([a-z])", shape)]
    if not levels or levels[-1][0] != "smt":
        levels.append(("smt", 1))
    places = list(itertools.product(*(range(count) for _, count in levels)))
    order = places if adjacent else sorted(places, key=lambda place: (place[-1], place))
    numbers = dict(zip(order, ids or range(len(places)), strict=True))
    gone = set(offline)
    put(root, f"{CPU}/online", spell(set(numbers.values()) - gone) + "\n")
    put(root, f"{CPU}/present", spell(numbers.values()) + "\n")
    put(root, "proc/cpuinfo", X86_HEAD)
    for place, number in numbers.items():
        cpu(root, number, {} if number in gone else {"physical_package_id": "-1", "core_id": str(place[-2])})
        if number not in gone:
            cache(root, number, 0, {"level": "1", "type": "Data", "size": "32K", "shared_cpu_list": str(number)})
    for depth, (name, _) in enumerate(levels[:-1], 1):
        group(root, name, [[numbers[p] for p in ps] for _, ps in _by_prefix(places, depth)], gone)
    return root


def _by_prefix(places: Iterable[tuple[int, ...]], depth: int):
    return ((key, list(found)) for key, found in itertools.groupby(sorted(places), key=lambda place: place[:depth]))


def group(root: Path, name: str, groups: Sequence[Sequence[int]], offline: Iterable[int] = ()) -> Path:
    """Groups of one level, whatever the other levels are: the way to write a level that does not nest."""
    gone = set(offline)
    for index, listed in enumerate(groups):
        live = [number for number in listed if number not in gone]
        if name == "numa":
            node(root, index, live)
        for number in live if name != "numa" else ():
            if name == "l3":
                facts = {"level": "3", "type": "Unified", "size": "16M", "shared_cpu_list": spell(live)}
                cache(root, number, 3, facts)
            else:
                put(root, f"{CPU}/cpu{number}/topology/{STEMS[name]}_list", spell(live) + "\n")
            if name == "socket":
                put(root, f"{CPU}/cpu{number}/topology/physical_package_id", f"{index}\n")
    return root


def memory_only(root: Path, number: int, memory_kb: int = 1 << 20) -> Path:
    """A node without CPUs: a GPU's memory, an expander, or persistent memory."""
    node(root, number, (), memory_kb)
    return root


def hybrid(root: Path, *kinds: Iterable[int], by: str = "lists") -> Path:
    """Kinds of cores, strongest first, told by x86 `lists`, by `capacity`, by `frequency` (kHz), or by ARM `part`."""
    for rank, listed in enumerate(kinds):
        cpus = list(listed)
        if by == "lists":
            put(root, f"sys/devices/{('cpu_core', 'cpu_atom', 'cpu_lowpower')[rank]}/cpus", spell(cpus) + "\n")
        for number in cpus if by != "lists" else ():
            file, text = {
                "capacity": ("cpu_capacity", 1024 >> rank),
                "frequency": ("cpufreq/cpuinfo_max_freq", 4_000_000 - rank * 1_200_000),
                "part": ("regs/identification/midr_el1", f"0x00000000410fd{0x4E - rank:02x}0"),
            }[by]
            put(root, f"{CPU}/cpu{number}/{file}", f"{text}\n")
    return root


def quota(root: Path, cpus: float | None, version: int = 2) -> Path:
    """A process in group /job that may use so many CPUs' worth of time; None: a group that sets no limit."""
    share = None if cpus is None else round(cpus * 100000)
    if version == 2:
        cgroup2(root, "/job", {"job/cpu.max": f"{'max' if share is None else share} 100000"})
    else:
        files = {"cpu.cfs_quota_us": str(-1 if share is None else share), "cpu.cfs_period_us": "100000"}
        cgroup1(root, "/job", {f"cpu,cpuacct/job/{name}": text for name, text in files.items()})
    return root


def cpuset(root: Path, cpus: str, mems: str = "0") -> Path:
    """A process in a version 2 group with these effective CPUs and memory nodes."""
    cgroup2(root, "/job", {"job/cpuset.cpus.effective": cpus, "job/cpuset.mems.effective": mems})
    return root
