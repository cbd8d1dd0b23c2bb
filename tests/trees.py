"""Small fake /proc and /sys trees: just the files that the probe reads, spelled as kernels spell them."""

from __future__ import annotations

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
