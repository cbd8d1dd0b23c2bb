"""What the tests of the kernel frame share: this machine, the test kernel, its variants good and bad."""

from __future__ import annotations

import functools
import os

from advisor.kernels.compilers import compilers
from advisor.kernels.registry import spec
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, read_variant
from advisor.records import Build, Caches, Choice, Machine, NumaNode, Pairs, Problem, Process, Team, pairs
from advisor.topology import array

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
KERNELS = os.path.join(DATA, "kernels")
BAD = os.path.join(DATA, "variants")


def isa() -> tuple[str, ...]:
    """Instruction sets of this machine, from /proc/cpuinfo."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        lines = [line for line in file if line.startswith(("flags", "Features"))]
    return tuple(lines[0].split(":", 1)[1].split()) if lines else ()


def here() -> Machine:
    """This machine as far as the frame needs it: a flat array of the CPUs in reach."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return Machine(
        hardware_id="test",
        limits_id="test",
        architecture=os.uname().machine,
        vendor=None,
        model_name=None,
        isa=isa(),
        online_cpus=cpus,
        offline_cpus=(),
        allowed_cpus=cpus,
        allowed_mems=None,
        cpu_quota=None,
        memory_limit_bytes=None,
        sockets=None,
        cores=len(cpus),
        threads_per_core=1,
        array=array.build({}, cpus),
        groupings=(),
        numa_nodes=(NumaNode(0, cpus, None, (10,)),),
        l3_groups=(cpus,),
        caches=Caches(32 << 10, 512 << 10, 1 << 20),
        core_classes=(),
        gpus=(),
        environment=(),
        warnings=(),
    )


@functools.cache
def scale() -> KernelSpec:
    """The test kernel's spec."""
    return spec("scale", [KERNELS])


def good(name: str) -> Variant:
    """A right variant of the test kernel."""
    return read_variant(os.path.join(KERNELS, "scale", f"{name}.c"), "scale")


def bad(name: str) -> Variant:
    """A deliberately bad one."""
    return read_variant(os.path.join(BAD, f"{name}.c"), "scale")


def process(wait_policy: str = "default") -> Process:
    """A process part of the first compiler's runtime."""
    return Process(compilers()[0].runtime, wait_policy, None, "default")


def choice(variant: Variant, threads: int = 1, wait_policy: str = "default", **knobs: int) -> Choice:
    """A choice with the first compiler, compactly placed; knobs left out take their defaults."""
    chosen: Pairs = pairs({**dict(variant.defaults), **knobs})
    made = Build(variant.name, variant.source_hash, chosen, compilers()[0].name, "o2")
    return Choice(made, Team(threads, ""), process(wait_policy))


def problem(n: int, dtype: str = "float32", **shape: int) -> Problem:
    """A problem of the test kernel."""
    return scale().problem(n, dtype, **shape)
