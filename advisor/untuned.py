"""What `advisor recommend` says of kernels that have no table here: the ladder of docs/transfer.md, made on the fly.

Offline: it reads other machines' logs and may fit a model. A server answers from what `advisor transfer --save` kept.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import codec
from advisor.device import CPU, is_device
from advisor.errors import AdvisorError
from advisor.kernels import registry
from advisor.kernels.gpu.device import target
from advisor.kernels.gpu.tools import PACKAGES, RUNTIME, reaching, short
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.libraries import FLAGS
from advisor.kernels.variant import variants
from advisor.paths import machine_dir
from advisor.policy.launch import process_words
from advisor.policy.store import save_table
from advisor.policy.transfer import Here, transferred
from advisor.probing import folder_of
from advisor.records import Machine, Problem, Row, Section, Table
from advisor.search.elsewhere import MOST_BYTES, machines
from advisor.search.rungs import MODELS
from advisor.search.space import HOPELESS_FLAGS, SpaceOptions, Toolchain, space_options
from advisor.show import choice_words
from advisor.signature.keep import with_earlier
from advisor.topology.probe import probe, read_machine
from advisor.words import many

if TYPE_CHECKING:
    from advisor.kernels.spec import KernelSpec
    from advisor.lookup import Policy

SUFFIX = ".transfer.table.json"
"""Ends the name of a table that was carried over: a tuned one lies beside it and counts first."""

RUNTIMES = {"gcc": ("libgomp", "c"), "clang": ("libomp", "c"), "gfortran": ("libgomp", "fortran")}
"""Compilers as a machine.json names them -> OpenMP runtime, language."""


def machine_asked(path: str | None, device: str | None = None) -> Machine:
    """The machine of a file, or the one at hand with the signature that was kept of it; with a device that of the GPU.

    Raises:
        BadInput: the file cannot be read, or there is no such device.
    """
    machine = probe() if path is None else read_machine(path)
    if device not in (None, CPU) and not is_device(machine.limits_id):
        return target(machine, str(device), is_here=path is None)
    return machine if path is not None else with_earlier(machine, f"{folder_of(machine)}/machine.json")


def here_of(kernel: str, machine: Machine, is_here: bool) -> Here:
    """What a machine can run of a kernel.

    Raises:
        BadInput: there is neither a compiler nor a library.
        UnknownName: no such kernel.
    """
    options = space_options(machine) if is_here else options_told(machine)
    found = variants(kernel, (), GPU_LANGUAGES) if is_device(machine.limits_id) else variants(kernel)
    return Here(machine, registry.spec(kernel), found, options)


def options_told(machine: Machine) -> SpaceOptions:
    """The tools that a machine.json names: those of another machine cannot be asked. GCC where it names none."""
    from advisor.kernels.compilers import flag_sets

    told = dict(machine.environment)
    if is_device(machine.limits_id):
        known = {language: f"{PACKAGES[language]}-{short(text)}" for language, text in reaching(told).items()}
        return SpaceOptions(tuple(Toolchain(name, RUNTIME, language) for language, name in known.items()), (FLAGS,))
    lines = [re.match(r"(\w+)\D*(\d+)", str(line)) for line in told.get("compilers") or ()]
    found = [(m[1], f"{m[1]}-{m[2]}") for m in lines if m is not None and m[1] in RUNTIMES]
    tools = [Toolchain(name, *RUNTIMES[family]) for family, name in found] or [Toolchain("gcc", "libgomp")]
    torch = re.match(r"\d+\.\d+", str(told.get("torch") or ""))
    tools += [Toolchain(f"torch-{torch[0]}", "libgomp", "python")] if torch else []
    flags = tuple(name for name in flag_sets(machine) if name not in HOPELESS_FLAGS)
    return SpaceOptions(tuple(tools), flags)


def table_of(
    kernel: str, machine: Machine, is_here: bool, sizes: Sequence[int], given: Mapping[str, Any] | None = None
) -> Table | None:
    """What other machines and the cost model say of a kernel on a machine; None where nothing is known.

    Args:
        kernel: its name.
        machine: that was never tuned for it.
        is_here: whether it is the machine at hand, whose tools can be asked.
        sizes: to answer by the cost model where nobody measured the shape.
        given: entries of the shape, dtype and regime that were asked for.
    """
    try:
        here = here_of(kernel, machine, is_here)
        wanted = _problems_of(here.spec, sizes, given or {})
        return transferred(here, machines(kernel, machine), wanted, given)
    except AdvisorError:  # a guess that cannot be made is no reason to refuse the careful rule
        return None


def _problems_of(spec: KernelSpec, sizes: Sequence[int], given: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is asked at each size; entries that were not given have the kernel's defaults."""
    shape = {"dtype": "float32", "regime": "warm", **given}
    dtype, regime = shape.pop("dtype"), shape.pop("regime")
    return tuple(spec.problem(n, dtype, regime, **shape) for n in sorted(set(sizes)))


def filled(
    policy: Policy, given: Mapping[str, Mapping[str, Any]], where: tuple[str | None, str | None], sizes: Sequence[int]
) -> Policy:
    """The policy with what other machines say of those kernels that no table here speaks of.

    Args:
        policy: this machine's tables.
        given: kernel -> entries of the shape, dtype and regime that were asked for.
        where: path of the machine.json that is answered for, None: the machine at hand; and device, None: its CPUs.
        sizes: that were asked for.
    """
    bare = [name for name in given if not policy.problems(name) and name in registry.kernels()]
    if not bare:
        return policy
    path = where[0]
    try:
        machine = machine_asked(*where)
    except AdvisorError:
        return policy
    made = (table_of(name, machine, path is None, sizes, given[name]) for name in bare)
    tables = [table for table in made if table is not None]
    return policy.extended([codec.to_json(table) for table in tables], unread(tables))


def unread(tables: Sequence[Table]) -> tuple[str, ...]:
    """A sentence for each machine of whose log the oldest part was passed over."""
    found: dict[str, int] = {}
    for table in tables:
        found.update(dict(table.provenance).get("unread_log_bytes") or {})
    read = f"the newest {MOST_BYTES >> 20} MB of the log of"
    return tuple(f"{read} {name} were read, {size / 1e6:.0f} MB before them were not" for name, size in found.items())


CARRIED = ("TRANSFERRED", "MODELLED")


def narrowed(
    policy: Policy, questions: Sequence[dict[str, Any]], given: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The questions that are meant where no shape was named.

    Other machines measured some shapes that nobody asked for. Of a kernel of which this machine measured something,
    that is meant; of one that others alone measured, its default shape, if that is among theirs.

    Args:
        policy: that answers.
        questions: problems of its tables, see `Policy.problems`.
        given: kernel -> entries of the shape, dtype and regime that were asked for.
    """
    kept: list[dict[str, Any]] = []
    for name in dict.fromkeys(question["kernel"] for question in questions):
        own = [question for question in questions if question["kernel"] == name]
        kept += own if set(given[name]) - {"dtype", "regime"} else _meant(policy, name, own, given[name])
    return [question for question in questions if question in kept]


def _meant(policy: Policy, name: str, own: list[dict[str, Any]], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    carried = [
        {"kernel": name, "dtype": section["dtype"], "regime": section["regime"], **dict(section["shape"])}
        for section in policy.sections(name)
        if section.get("basis") in CARRIED
    ]
    measured = [question for question in own if question not in carried]
    if measured or name not in registry.kernels():
        return measured or own
    (problem,) = _problems_of(registry.spec(name), [1], given)
    default = {"kernel": name, "dtype": problem.dtype, "regime": problem.regime, **dict(problem.shape)}
    return [question for question in own if question == default] or own


# --- advisor transfer ---


class Found(NamedTuple):
    """Tables made of what others know, where they were kept, and sentences for people."""

    tables: tuple[Table, ...]
    paths: tuple[str, ...]
    notes: tuple[str, ...]


def told(
    kernels: Sequence[str], path: str | None, sizes: Sequence[int], save: bool, device: str | None = None
) -> Found:
    """What is known of kernels on a machine that was never tuned.

    Args:
        kernels: their names.
        path: of a machine.json; None: the machine at hand.
        sizes: for the cost model.
        save: keep the tables where lookups on that machine find them.
        device: of that machine, cuda:N; None: its CPUs.

    Raises:
        BadInput: the file cannot be read, there is no such device, or the folder cannot be written.
    """
    machine = machine_asked(path, device)
    tables = [table for name in kernels if (table := table_of(name, machine, path is None, sizes)) is not None]
    known = {table.kernel for table in tables}
    bare = [name for name in kernels if name not in known]
    notes = [f"nothing is known of {', '.join(bare)}: no other machine was tuned for it"] if bare else []
    notes += unread(tables)
    gpu = is_device(machine.limits_id)
    step = "tune one" if gpu else "tune one, or measure what the cost model needs: advisor probe --bench"
    notes += [] if tables else [step]
    return Found(tuple(tables), tuple(_keep(table) for table in tables) if save else (), tuple(notes))


def _keep(table: Table) -> str:
    """Write a table beside the machine's own, in place of what was carried over before."""
    folder = machine_dir(table.hardware_id, table.limits_id)
    path = os.path.join(folder, f"{table.kernel}{SUFFIX}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # sections of problems that nobody knows any more must not stay
    save_table(path, table)
    return path


def shown(table: Table) -> str:
    """A table that was carried over, for people: the ladder of each problem, then a line a range of n."""
    lines = []
    for section in table.sections:
        origin = dict(section.extra)["origin"]
        shape = " ".join(f"{name}={value}" for name, value in section.shape)
        lines.append(f"{table.kernel} {section.dtype} {shape} {section.regime}, {_process_words(section)}")
        lines += [f"  {text}" for text in _ladder_words(origin)]
        lines += [f"  {row.low}..{row.high}: {_row_words(row)}" for row in section.rows]
    return "\n".join(lines)


def _process_words(section: Section) -> str:
    return "on a device" if section.process is None else process_words(section.process)


def _ladder_words(origin: Mapping[str, Any]) -> list[str]:
    """The ways that were checked, best first; why nothing may be claimed."""
    ways = [
        f"{one['rung']}{' by ' + one['rule'] if one['rule'] else ''} {one['regret']:.3f} ({one['checked']} checked)"
        for one in origin["ladder"]
        if one["regret"] is not None
    ]
    checked = [f"time over the best with each known machine left out: {'; '.join(ways)}"] if ways else []
    models = origin["models"]
    return checked if models >= MODELS else [*checked, f"no validated regret: {models} of {MODELS} models known"]


def _row_words(row: Row) -> str:
    threads = "" if row.choice.team is None else f", {many(row.choice.team.threads, 'thread')}"
    told = dict(row.extra)
    regret = dict(told["origin"])["validated_regret"]
    claim = "" if regret is None else f"; validated regret {regret:.3f}"
    return f"{choice_words(row.choice)}{threads}; {told['why']}{claim}"
