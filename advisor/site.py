"""Site: the machine, its limits and the process that answers are for. Standard library only, no `typing`: hot path."""

from __future__ import annotations

import os
from collections import namedtuple

from advisor.errors import AdvisorError, BadInput
from advisor.tablefile import read_json
from advisor.topology.array import ABSENT, CpuArray, build, live, part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class Site(NamedTuple):  # noqa: D101 (documented below, where it is made)
        hardware_id: str
        limits_id: str
        array: CpuArray
        mask: tuple[int, ...]
        budget: int
        environment: dict[str, Any]
        wait_policy: str = "default"
        spin: int | str | None = None
        stale: str = "default"
        part: str = ""
        refusal: str = ""
        isa: tuple[str, ...] = ()
        hashes: dict[tuple[str, str], str | None] | None = None
        groupings: Any = None
        memory_policy: str = "default"
        objective: str | None = None
        gpu: dict[str, Any] | None = None

else:
    Site = namedtuple(
        "Site",
        "hardware_id limits_id array mask budget environment wait_policy spin stale part refusal isa hashes "
        "groupings memory_policy objective gpu",
        defaults=("default", None, "default", "", "", (), None, None, "default", None, None),
    )
    Site.__doc__ = """Where answers are for.

    array, mask, budget: the machine, the CPU ids in reach, the CPUs that the quota pays for.
    environment: what can be told of it now; at least `kernel` on the machine at hand.
    wait_policy, spin, memory_policy: the process part that runs. stale: "default" or "use".
    part: "1 of 2" when only a part of the machine is ours, else empty. refusal: why nothing may be applied, or empty.
    isa: instruction sets, to name what differs from another machine; empty when not known.
    hashes: (kernel, variant) -> source hash, filled while a policy is loaded; None: nothing is remembered.
    objective: what answers shall be best at; None: what each table was made for.
    groupings: name -> groups that placements may name, or a function that gives them; None: only the array's axes.
    gpu: fields of the GPU that answers are for, whose ids are then the site's; None: the CPUs.
    """


def identify(root: str) -> Any:
    """The ids and limits of the machine at hand; see `advisor.identity.here`."""
    from advisor.identity import here

    return here(root)


def describe_here(root: str, notes: list[str]) -> Site:
    """The machine at hand. One that cannot be read is taken as its live mask, flat, and no table counts there."""
    try:
        found = identify(root)
        environment = {"kernel": found.kernel}
        mask, budget = tuple(found.allowed), max(1, found.budget)
        bound = started_environment().get("OMP_PROC_BIND", "").strip().lower() not in ("", "false")
        if bound and len(mask) == 1 < len(found.array.cpus):
            notes.append("OMP_PROC_BIND has bound this thread to one CPU; load the policy before the first region")
        ids = found.hardware_id, found.limits_id
        known = getattr(found, "groupings", None)
        return Site(*ids, found.array, mask, budget, environment, isa=tuple(found.isa), groupings=known)
    except Exception as error:  # whatever an odd /proc or /sys brings, a server goes on
        notes.append(f"this machine cannot be identified ({error}), so no table counts; run `advisor doctor`")
        mask = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
        return Site("unknown", "unknown", build({}, mask), mask, 1, {})


def device_here(site: Site, name: str) -> Site:
    """The site of one GPU of the machine at hand, asked in child processes that take up to some seconds.

    Raises:
        BadInput: there is no such device, or it cannot be told from others.
    """
    from advisor.topology.gpu import find

    found = find(())
    rows = [{**gpu._asdict(), "reasons": dict(gpu.reasons)} for gpu in found.gpus]
    return _device(site, rows, name, {"driver": found.driver})


def _device(site: Site, rows: list[dict[str, Any]], name: str | None, environment: dict[str, Any]) -> Site:
    """The site of one of some GPUs, of the only one where none is named."""
    from advisor import device

    row = rows[0] if name is None else rows[device.find(rows, name)]
    known = {**environment, "sm_count": row.get("sm_count")}
    told = {field: value for field, value in known.items() if value is not None}
    return site._replace(hardware_id=row["device_id"], limits_id=device.LIMITS_ID, environment=told, gpu=row)


def describe_file(path: str, device: str | None = None) -> Site:
    """The machine of a machine.json, or one of its GPUs.

    Args:
        path: of the file.
        device: cuda:N, by the number that CUDA programs would use there; None or cpu: the machine itself, which is a
            GPU where the file was kept with the tables of one.

    Raises:
        BadInput: it cannot be read, lacks a field, or has no such device.
    """
    document = read_json(os.fspath(path))
    site = _described(document, path)
    named = device if device != "cpu" else None
    if named is None and site.limits_id != "device":
        return site
    try:
        rows = [dict(row) for row in document["gpus"]]
        return _device(site, rows, named, site.environment)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} must describe its GPUs", got=str(error), next_step="advisor probe") from None


def _described(document: dict[str, Any], path: str) -> Site:
    try:
        array = document["array"]
        shape = _array(array["axes"], array["shape"], array["cpus"])
        mask = tuple(cpu for cpu in document["allowed_cpus"] if cpu in shape.cpus and cpu != ABSENT)
        quota = document.get("cpu_quota")
        budget = max(1, min(len(mask), int(quota) if quota else len(mask)))
        ids = document["hardware_id"], document["limits_id"]
        environment = dict(document.get("environment") or {})
        isa = tuple(document.get("isa") or ())
        known = _groupings(document)
        if not mask or not all(isinstance(text, str) for text in (*ids, *isa)):
            raise ValueError("no CPU of the array is allowed, or an id is no text")
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadInput(f"{path} must be a machine description", got=str(error), next_step="advisor probe") from None
    refusal = f"the answer is for the machine of {os.path.basename(path)}, not for this one"
    return Site(*ids, shape, mask, budget, environment, refusal=refusal, isa=isa, groupings=known)


def _groupings(document: dict[str, Any]) -> dict[str, list[list[int]]]:
    """The groupings of a machine.json, core classes among them, as `identity.groupings` gives them for this machine."""
    found = {str(name): [list(map(int, group)) for group in groups] for name, groups in document["groupings"].items()}
    kinds = [list(map(int, kind["cpus"])) for kind in document.get("core_classes") or ()]
    return {**found, "class": kinds} if len(kinds) > 1 else found


def _array(axes: list[str], shape: list[int], cpus: list[int]) -> CpuArray:
    """An array from a file, checked: its extents say how long later loops are."""
    size = 1
    for extent in shape:
        size *= extent if isinstance(extent, int) and extent > 0 else 0
    whole = all(isinstance(cpu, int) and not isinstance(cpu, bool) for cpu in cpus)
    if size != len(cpus) or len(axes) != len(shape) or not whole or not all(isinstance(axis, str) for axis in axes):
        raise ValueError("the array's axes, shape and CPUs must fit together")
    return CpuArray(tuple(axes), tuple(shape), tuple(cpus))


def started_environment() -> dict[str, str]:
    """The environment as this process was started with, which is what an OpenMP runtime saw."""
    try:
        with open("/proc/self/environ", "rb") as file:
            items = [item.partition(b"=") for item in file.read().split(b"\0") if b"=" in item]
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in items}
    except OSError:
        return dict(os.environ)


def running_process(notes: list[str]) -> tuple[str, int | str | None]:
    """Wait policy and spin count of the running process, as it was started."""
    started = started_environment()
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        if started.get(name) != os.environ.get(name):
            notes.append(f"{name} was changed after the process started; answers are for the value at its start")
    wait = started.get("OMP_WAIT_POLICY", "").strip().lower()
    count = started.get("GOMP_SPINCOUNT", "").strip()
    spin = (int(count) if count.isdecimal() else count) if count else None
    return wait if wait in ("active", "passive") else "default", spin


def running_memory_policy(path: str = "/proc/self/numa_maps") -> str:
    """`interleave` where the process was started under that policy over several nodes, else `default`.

    The first mapping is the program's and has the policy of the process; its line alone is read. Policies that only say
    where memory may lie leave pages near the threads that touch them, as the default does.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            words = file.read(256).split()
    except OSError:
        return "default"
    policy, _, nodes = words[1].partition(b":") if len(words) > 1 else (b"", b"", b"")
    return "interleave" if policy.startswith(b"interleave") and (b"-" in nodes or b"," in nodes) else "default"


def share(site: Site, instance: int, of: int, notes: list[str]) -> Site:
    """The site cut to one of `of` disjoint parts, of whole cores."""
    reach = live(site.array, site.mask)
    try:
        own = part(reach, instance, of)
    except AdvisorError as error:
        cores = max(1, len(set(reach.cpus) - {ABSENT}) // max(1, reach.shape[-1] if reach.shape else 1))
        notes.append(f"{error}; instance {instance} shares the core of instance {instance % cores}")
        own = part(reach, instance % cores, cores) if len(site.mask) else reach
    mask = tuple(cpu for cpu in own.cpus if cpu != ABSENT)
    return site._replace(array=own, mask=mask, budget=max(1, site.budget // of), part=f"{instance} of {of}")
