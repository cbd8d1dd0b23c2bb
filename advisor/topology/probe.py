"""The probe: one description of the machine at hand, or of a recorded tree, and its file."""

from __future__ import annotations

import functools
import os
from typing import Any

from advisor import codec, identity
from advisor.errors import BadInput, Missing
from advisor.records import Caches, Machine, Pairs, pairs
from advisor.topology import child, details, gpu, lscpu, pages, software, sysfs, tries, witness
from advisor.topology.array import is_flat
from advisor.topology.files import cpu_set, span
from advisor.topology.limits import Limits

_NAME_LIMIT_S = 5.0
_ASK_NAME = "import cpuinfo, sys; sys.stdout.write(cpuinfo.get_cpu_info().get('brand_raw') or '')"


def probe(root: str = "/") -> Machine:
    """Describe a machine.

    Args:
        root: `/` for the machine at hand, or the folder of a recorded tree that holds `proc/` and `sys/`. A tree is
            read from its files alone: no GPU, compiler or program is asked; what lscpu said there counts as a witness
            where it was recorded.

    Returns:
        A Machine; what cannot be known is None, with a warning where that matters.
    """
    machine = topology(root)
    if root == "/":
        return _with_environment(machine)
    said = lscpu.listen(lscpu.recorded(root))
    return machine._replace(warnings=(*machine.warnings, *witness.lscpu_notes(said, machine)))


def topology(root: str = "/") -> Machine:
    """The part of a description that comes from kernel files: no subprocess, no GPU, no compiler."""
    limits, layout = identity.survey(root)
    array = identity.whole(layout)
    cores = sysfs.groups(layout, "core") or tuple((cpu,) for cpu in layout.online)
    sockets = sysfs.groups(layout, "socket")
    kinds, nodes = details.core_classes(root, layout), details.numa_nodes(root, layout)
    by_class = {"class": tuple(kind.cpus for kind in kinds)} if len(kinds) > 1 else {}
    return Machine(
        hardware_id=identity.hardware_id(layout, array, root),
        limits_id=identity.limits_id(limits, layout, array, root),
        architecture=layout.cpu.architecture,
        vendor=layout.cpu.vendor if layout.cpu.readable else "unknown",
        model_name=layout.cpu.model,
        isa=layout.cpu.isa,
        online_cpus=layout.online,
        offline_cpus=layout.offline,
        allowed_cpus=identity.reach(limits, layout),
        allowed_mems=limits.allowed_mems,
        cpu_quota=limits.cpu_quota,
        memory_limit_bytes=limits.memory_limit_bytes,
        sockets=len(sockets) if sockets else None,
        cores=len(cores),
        threads_per_core=max(map(len, cores)),
        array=array,
        groupings=pairs({**dict(layout.groupings), **by_class}),
        numa_nodes=nodes,
        l3_groups=sysfs.groups(layout, "l3") or (),
        caches=Caches(*layout.caches),
        core_classes=kinds,
        gpus=(),
        environment=pairs({"kernel": release}) if (release := identity.kernel_release(root)) else (),
        warnings=(
            *limits.warnings,
            *layout.warnings,
            *details.node_warnings(layout, nodes),
            *_warnings(root, limits, layout),
        ),
        extra=pairs({**_memory(root), **dict(pages.read(root))}),
    )


def _warnings(root: str, limits: Limits, layout: sysfs.Layout) -> tuple[str, ...]:
    isolated = set(cpu_set(os.path.join(root, sysfs.CPU, "isolated")) or ()) & set(identity.reach(limits, layout))
    found = []
    if isolated:
        found.append(f"CPUs {span(isolated)} are isolated: the scheduler puts no thread there that is not pinned")
    if limits.cpu_quota is not None and limits.cpu_quota < 1:
        found.append(f"the CPU quota of {limits.cpu_quota:g} is under one CPU: even one thread will be throttled")
    return (*found, *pages.warnings(pages.read(root), layout.memory_nodes))


def _memory(root: str) -> dict[str, int]:
    total = details.memory_total(root)
    return {} if total is None else {"memory_total_bytes": total}


# --- the machine at hand ---


def _with_environment(machine: Machine) -> Machine:
    """Adds what must be asked from programs: GPUs, versions, memory and load now, second witnesses."""
    import psutil

    found = gpu.find(machine.numa_nodes)
    told = {"driver": found.driver, "cuda": found.cuda, "gpu_power_limits_w": found.power_limits_w or None}
    told.update(software.device_tools() if found.gpus else {})
    known = {name: value for name, value in told.items() if value is not None}
    now = {
        "memory_available_bytes": psutil.virtual_memory().available,
        "load_1min": round(psutil.getloadavg()[0], 2),
    }
    said = None if is_flat(machine.array) else lscpu.listen()
    tried = tries.attempt(machine.allowed_mems or (0,))
    return machine._replace(
        model_name=machine.model_name or _model_name(said),
        gpus=found.gpus,
        environment=pairs({**dict(software.environment()), **known}),
        warnings=(*machine.warnings, *found.warnings, *software.warnings(), *_witnesses(machine, said, tried)),
        extra=pairs({**dict(machine.extra), **dict(tried), **now}),
    )


def _witnesses(machine: Machine, said: lscpu.Said | None, tried: Pairs) -> tuple[str, ...]:
    """Second witnesses, none on a flat machine, where they would read the same missing files; and what was refused."""
    heard = () if is_flat(machine.array) else witness.warnings(machine, said)
    nodes = sum(1 for node in machine.numa_nodes if node.memory_bytes)
    return (*heard, *tries.warnings(tried, nodes))


def _model_name(said: lscpu.Said | None) -> str | None:
    """A name where the kernel tells none: lscpu's, which knows ARM parts, else py-cpuinfo's.

    The latter takes over a second, so it is asked in a child, for a limited time, only then, and once a run.
    """
    told = said.fields.get("model name", "-") if said else "-"
    return told if told != "-" else _ask_cpuinfo()


@functools.cache
def _ask_cpuinfo() -> str | None:
    return (child.ask_python(_ASK_NAME, _NAME_LIMIT_S) or "").strip() or None


# --- its file ---


def machine_json(machine: Machine) -> str:
    """The text of machine.json, also what `advisor probe --json` prints."""
    return codec.dumps(machine, "machine")


def machine_document(machine: Machine) -> Any:
    """The same as plain JSON data."""
    return {"schema": codec.schema_of("machine"), **codec.to_json(machine)}


def read_machine(path: str) -> Machine:
    """A machine.json.

    Raises:
        Missing: there is no such file.
        BadInput: it is not one, or (SchemaError) was written by a newer advisor.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        reason = f"{error.strerror}; make one: advisor probe --json"
        raise Missing("no machine description here", got=path, next_step=reason) from error
    except UnicodeDecodeError as error:
        raise BadInput("a machine description is text", got=path, next_step="name a machine.json") from error
    document = codec.loads(text, path)
    codec.check_schema(document, "machine", path)
    machine: Machine = codec.from_json(Machine, document)
    return machine
