"""The space: every choice that is valid for one problem on one machine, listed in a fixed order.

A list, not a set of rules: the sampler scores all of it, never proposes a hole, and knows when it is used up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from advisor.device import is_device
from advisor.errors import BadInput
from advisor.records import Build, Choice, Machine, Process, Team
from advisor.topology import placement
from advisor.topology.array import CpuArray, live
from advisor.topology.candidates import classes, groupings

if TYPE_CHECKING:
    from advisor.kernels.spec import KernelSpec
    from advisor.kernels.variant import Variant
    from advisor.records import Problem

SPIN = 10_000
"""The one spin count tried: between passive (0) and libgomp's own 300,000, about 0.3 ms of waiting.

Source: libgomp manual, GOMP_SPINCOUNT; 45 to 140 cycles a pause instruction at 2 to 4 GHz.
"""

WAITS: dict[str, tuple[tuple[str, int | None], ...]] = {
    "libgomp": (("default", None), ("active", None), ("passive", None), ("default", SPIN)),
    "libomp": (("default", None), ("active", None), ("passive", None)),  # libomp counts milliseconds, not spins
}
"""OpenMP runtime -> (wait policy, spin count), the runtime's own behaviour first."""

HOPELESS_FLAGS = ("o2",)
"""Flag sets that are not tried: -O2 cost up to 6.7 times, won nowhere (measured on decode), and doubles the space."""

OVERSUBSCRIBE = 2
"""With oversubscription allowed, up to this many threads a CPU of the budget."""


class Toolchain(NamedTuple):
    """A compiler or library as far as the space needs it: name, OpenMP runtime, language of the variants it is for."""

    name: str
    runtime: str
    language: str = "c"


class SpaceOptions(NamedTuple):
    """What is varied beside the variants' own knobs. The first compiler and the first flag set are the DEFAULT's.

    Attributes:
        compilers: in order of preference.
        flags: names of flag sets that are valid on this machine.
        oversubscribe: whether more threads than the CPU budget are tried.
        memory_policies: of process parts, the DEFAULT's first; see `memory_policies`.
    """

    compilers: tuple[Toolchain, ...]
    flags: tuple[str, ...] = ("native",)
    oversubscribe: bool = False
    memory_policies: tuple[str, ...] = ("default",)


def space_options(machine: Machine, oversubscribe: bool = False) -> SpaceOptions:
    """The options with every compiler and library found here and every flag set that is valid here.

    For the machine of a device (`gpu.device.machine_of`) those with the tools of a device.

    Raises:
        BadInput: neither a compiler that can build and load an OpenMP program nor a library; for a device, no CuPy.
    """
    if is_device(machine.limits_id):
        return _device_options(oversubscribe)
    from advisor.kernels.compilers import flag_sets
    from advisor.kernels.libraries import tools

    found = tuple(Toolchain(c.name, c.runtime, c.language) for c in tools())
    if not found:
        raise BadInput(
            "tuning needs a C compiler with OpenMP, or PyTorch whose calls need none",
            got="neither",
            next_step="Debian: apt-get install gcc; or pip install onf-advisor[torch]; see `advisor doctor`",
        )
    flags = tuple(name for name in flag_sets(machine) if name not in HOPELESS_FLAGS)
    return SpaceOptions(found, flags, oversubscribe, memory_policies(machine))


def _device_options(oversubscribe: bool) -> SpaceOptions:
    from advisor.kernels.gpu.tools import needed_tools
    from advisor.kernels.libraries import FLAGS

    if oversubscribe:
        raise BadInput("--oversubscribe is about threads on CPUs", got="a device", next_step="leave it out")
    return SpaceOptions(tuple(Toolchain(c.name, c.runtime, c.language) for c in needed_tools()), (FLAGS,))


def memory_policies(machine: Machine) -> tuple[str, ...]:
    """The memory policies that differ on this machine and that its kernel was seen to allow; the default first."""
    from advisor.kernels.numa import policies

    told = dict(machine.extra).get("memory_policy") or {}
    allowed = bool(told) and all(said == "allowed" for said in told.values())
    return policies(machine.numa_nodes, allowed, machine.allowed_mems)


def first_of_each_language(found: Sequence[Toolchain]) -> tuple[Toolchain, ...]:
    """The preferred tool of every language."""
    return tuple({tool.language: tool for tool in reversed(found)}.values())[::-1]


def binary(build: Build) -> Build:
    """The build with the knobs that are compiled in, macros in upper case; the others are given at run time."""
    return build._replace(knobs=tuple((name, value) for name, value in build.knobs if name.isupper()))


# --- process parts ---


def processes(runtime: str, memory_policies: Sequence[str] = ("default",)) -> tuple[Process, ...]:
    """The process parts of one OpenMP runtime, the default one first.

    Further memory policies are tried with the runtime's own waiting and with passive threads alone: where pages lie
    matters for long calls, how threads spin for short ones.
    """
    waits = WAITS.get(runtime, (("default", None),))
    first, *others = memory_policies
    few = [(wait, spin) for wait, spin in waits if wait in ("default", "passive") and spin is None]
    listed = [*((wait, first) for wait in waits), *((wait, policy) for policy in others for wait in few)]
    return tuple(Process(runtime, *wait, policy) for wait, policy in listed)


def waits_as_started(process: Process | None) -> bool:
    """Whether threads wait as the runtime does by itself."""
    return process is None or (process.wait_policy == "default" and process.spin is None)


def is_default_process(process: Process | None) -> bool:
    """Whether this is its runtime's default process part."""
    return process is None or (waits_as_started(process) and process.memory_policy == "default")


# --- teams ---


def cpu_budget(machine: Machine) -> int:
    """CPUs that can be used at once: the mask, or the whole part of the quota where that is less; at least 1."""
    allowed = len(machine.allowed_cpus)
    return max(1, allowed if machine.cpu_quota is None else min(allowed, int(machine.cpu_quota)))


def _cores(array: CpuArray, cpus: Iterable[int]) -> int:
    """How many cores of the array hold at least one of the CPUs."""
    inside, step = set(cpus), array.shape[-1] if array.shape else 1
    rows = (array.cpus[i : i + step] for i in range(0, len(array.cpus), step))
    return sum(any(cpu in inside for cpu in row) for row in rows)


def _own_groups(machine: Machine) -> dict[str, Sequence[Sequence[int]]]:
    known = groupings(machine)
    return {
        "cores of one L3": machine.l3_groups,
        "cores of one NUMA domain": tuple(node.cpus for node in machine.numa_nodes if node.cpus),
        "cores of one socket": tuple(known.get("socket", ())),
        "cores of one kind": tuple(known.get(placement.CLASS, ())),
    }


def thread_labels(machine: Machine, oversubscribe: bool = False) -> dict[int, tuple[str, ...]]:
    """Every thread count worth trying, with what it is on this machine.

    Args:
        machine: counts are of the part in reach.
        oversubscribe: also counts beyond the CPU budget, up to twice; they are labelled `oversubscribed`.

    Returns:
        Count -> labels, ascending: powers of two, the machine's own counts, the budget and one CPU less.
    """
    budget, mask = cpu_budget(machine), set(machine.allowed_cpus)
    array = live(machine.array, mask)
    cores = max(1, _cores(array, mask))
    named = [(cores, "all cores"), (cores - 1, "all cores but one"), (len(mask), "all hardware threads")]
    named += [(budget, "the whole CPU budget"), (budget - 1, "the CPU budget but one")]
    for label, groups in _own_groups(machine).items():
        named += [(count, label) for count in sorted({_cores(array, group) for group in groups})]
    limit = budget * (OVERSUBSCRIBE if oversubscribe else 1)
    named += [(1 << k, "power of two") for k in range(limit.bit_length())]
    named += [(limit, f"{OVERSUBSCRIBE} x the CPU budget")] if oversubscribe else []
    found: dict[int, list[str]] = {}
    for count, label in named:
        if 0 < count <= limit:
            found.setdefault(count, ["oversubscribed"] if count > budget else []).append(label)
    return {count: tuple(dict.fromkeys(found[count])) for count in sorted(found)}


def thread_counts(machine: Machine, oversubscribe: bool = False) -> tuple[int, ...]:
    """The thread counts worth trying, ascending; see `thread_labels` for what each is."""
    return tuple(thread_labels(machine, oversubscribe))


def default_team(machine: Machine) -> Team:
    """The careful rule: physical cores of one NUMA domain within the budget, of several kinds the strongest."""
    known = groupings(machine)
    return Team(*placement.default_team(machine.array, machine.allowed_cpus, cpu_budget(machine), known))


def teams(machine: Machine, oversubscribe: bool = False) -> tuple[Team, ...]:
    """Thread counts with placements, never two whose threads run on the same set of CPUs.

    The DEFAULT team stands for its equals, so that it is in the space; else the simplest placement does. A team that
    outnumbers the CPUs in reach is not pinned: no placement offers a CPU to each of its threads.
    """
    first = default_team(machine)
    found = []
    for threads in sorted({*thread_counts(machine, oversubscribe), first.threads}):
        if threads > len(machine.allowed_cpus):
            found.append(Team(threads, placement.UNPINNED))
            continue
        own = first.placement if threads == first.threads else None
        found += [Team(threads, one.expression) for one in classes(machine, threads, own)]
    return tuple(found)


# --- devices ---


def on_device(options: SpaceOptions) -> bool:
    """Whether the choices are for a GPU, the first of the machine that is asked about: see `gpu.device.machine_of`."""
    return bool(options.compilers) and all(tool.runtime == "cuda" for tool in options.compilers)


def _languages(options: SpaceOptions) -> list[tuple[str, str]]:
    return [(tool.name, tool.language) for tool in options.compilers]


# --- choices ---


def _check(spec: KernelSpec, problem: Problem, options: SpaceOptions) -> None:
    if problem.kernel != spec.name:
        raise BadInput("a problem must be of the kernel that is tuned", got=problem.kernel, allowed=spec.name)
    if not options.compilers or not options.flags:
        raise BadInput("a space needs a compiler and a flag set", got=options, next_step="see `advisor doctor`")


def _builds(variants: Sequence[Variant], problem: Problem, options: SpaceOptions) -> Iterator[tuple[Build, Toolchain]]:
    from advisor.kernels.libraries import flag_sets_of
    from advisor.kernels.variant import knob_sets

    for variant in variants:
        tools = [tool for tool in options.compilers if tool.language == variant.made_with]
        sets = flag_sets_of(variant.language, options.flags)
        for knobs, tool, flags in itertools.product(knob_sets(variant, problem), tools, sets):
            yield Build(variant.name, variant.source_hash, knobs, tool.name, flags), tool


def _processes_of(tool: Toolchain, options: SpaceOptions) -> tuple[Process, ...]:
    """The process parts of a toolchain. A library has two waits, its own and passive: each further one is a process
    that imports the library, seconds before its first look."""
    from advisor.kernels.libraries import LANGUAGE

    found = processes(tool.runtime, options.memory_policies)
    if tool.language != LANGUAGE:
        return found
    return tuple(one for one in found if one.spin is None and one.wait_policy in ("default", "passive"))


def space(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problem: Problem, options: SpaceOptions
) -> tuple[Choice, ...]:
    """Every valid choice for a problem.

    One thread waits for nobody, so its choices exist in the default process part only, and in that of each further
    memory policy.

    Args:
        machine: instruction sets, the array, the limits.
        spec: the kernel's DNF.
        variants: its realisations, in order of rank.
        problem: dtype and dims that the variants' rules are checked against.
        options: compilers, flag sets, oversubscription.

    Raises:
        BadInput: the problem is of another kernel, or there is no compiler or flag set.
    """
    from advisor.kernels.variant import missing_isa

    _check(spec, problem, options)
    if on_device(options):
        from advisor.kernels.gpu.space import gpu_space

        return gpu_space(machine.gpus[0], spec, variants, problem, _languages(options))
    usable = [variant for variant in variants if not missing_isa(variant, machine)]
    crowd = teams(machine, options.oversubscribe)
    return tuple(
        Choice(build, team, process)
        for build, tool in _builds(usable, problem, options)
        for process in _processes_of(tool, options)
        for team in crowd
        if team.threads > 1 or waits_as_started(process)
    )


def default_choice(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problem: Problem, options: SpaceOptions
) -> Choice:
    """What an untuned machine would take: the first variant in rank that is valid here, default knobs, careful team.

    A library, called or linked, is taken only where nothing else can run: what an untuned machine does must not hang
    on it.

    Args: as of `space`.

    Raises:
        UnknownName: no variant is valid for this problem on this machine.
        BadInput: as of `space`, or no variant is in a language that there is a tool for.
    """
    _check(spec, problem, options)
    if on_device(options):
        from advisor.kernels.gpu.space import gpu_default

        return gpu_default(machine.gpus[0], spec, variants, problem, _languages(options))
    from advisor.kernels.available import check as check_tools
    from advisor.kernels.libraries import FLAGS, LANGUAGE
    from advisor.kernels.variant import default_build

    tools = {tool.language: tool for tool in reversed(options.compilers)}
    usable = [v for v in variants if v.made_with in tools]
    check_tools(variants, tools.keys())
    able = sorted(usable, key=lambda v: (v.language == LANGUAGE or bool(v.libraries), v.rank, v.name))
    flags = "native" if "native" in options.flags else options.flags[0]
    build = default_build(able, problem, machine, "", flags)
    language = next(v.made_with for v in able if v.name == build.variant)
    tool, build = tools[language], build._replace(flags=FLAGS if language == LANGUAGE else flags)
    process = processes(tool.runtime, options.memory_policies)[0]
    return Choice(build._replace(compiler=tool.name), default_team(machine), process)
