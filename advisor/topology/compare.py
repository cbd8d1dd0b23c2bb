"""What differs between two descriptions of machines, and what follows for the tables that were tuned on the first.

Three verdicts, as `advisor.lookup` gives them: EXACT stays (nothing that an id or a row depends on), STALE (a version
that rows name: those rows are answered by DEFAULT), never EXACT (another hardware or limits id).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from advisor.installed import LIBRARIES, LINKED, package_of
from advisor.records import Machine, Row, Table
from advisor.topology.array import CpuArray, live, pattern
from advisor.topology.files import span
from advisor.topology.software import COMPILERS, OPENMP
from advisor.words import many

EXACT, STALE, NEVER = "EXACT stays", "STALE", "never EXACT"
ORDER = (EXACT, STALE, NEVER)

SUMMARIES = ("compilers", "openmp")
"""Environment fields that only list what other fields say."""

NEEDED = frozenset(
    [*COMPILERS, *(runtime for runtime, _, _ in OPENMP), *LIBRARIES, *LINKED, "kernel", "driver", "cuda"]
)
"""Environment fields that rows may depend on; the others (Python, glibc, the full kernel release) are told only."""

PASSING = ("load_1min", "memory_available_bytes", "team", "unavailable")
"""Fields that are never the same twice, or of one question and not of the machine; they are not compared."""


class Difference(NamedTuple):
    """One field. `was` of the machine that was described, `is_now` of the one at hand, `follows` one of ORDER."""

    field: str
    was: str
    is_now: str
    follows: str
    why: str


class Comparison(NamedTuple):
    """`verdict` is the gravest of the differences; `tables` one sentence a table that lies beside the description."""

    verdict: str
    differences: tuple[Difference, ...]
    tables: tuple[str, ...] = ()


def compare(old: Machine, new: Machine) -> Comparison:
    """Every field that differs, gravest first.

    Args:
        old: the machine that tables were made on.
        new: the machine at hand.
    """
    found = [*_hardware(old, new), *_limits(old, new), *_environment(old, new), *_rest(old, new)]
    found.sort(key=lambda difference: -ORDER.index(difference.follows))
    return Comparison(found[0].follows if found else EXACT, tuple(found))


# --- fields that ids are made of ---

_MADE_OF: tuple[tuple[str, Callable[[Machine], Any]], ...] = (
    ("model_name", lambda machine: machine.model_name),
    ("isa", lambda machine: machine.isa),
    ("array", lambda machine: (machine.array.axes, machine.array.shape)),
    ("array.cpus", lambda machine: pattern(machine.array)),
    ("caches", lambda machine: machine.caches),
    ("gpus", lambda machine: sorted(gpu.name or "unnamed" for gpu in machine.gpus)),
)
"""Field -> what of it counts for the hardware id. GPUs stand for their PCI numbers, which no file keeps."""


def _hardware(old: Machine, new: Machine) -> list[Difference]:
    other = old.hardware_id != new.hardware_id
    why = "another hardware_id" if other else "the hardware_id is the same"
    names = [name for name, value in _MADE_OF if value(old) != value(new)]
    if "array" in names and "array.cpus" in names:
        names.remove("array.cpus")  # another shape says so already
    found = [Difference(name, _text(old, name), _text(new, name), NEVER if other else EXACT, why) for name in names]
    if other and not any(difference.follows == NEVER for difference in found):
        found.append(Difference("hardware_id", old.hardware_id, new.hardware_id, NEVER, "another hardware_id"))
    return found


def _text(machine: Machine, name: str) -> str:
    value: Callable[[Machine], str] = {
        "model_name": lambda m: str(m.model_name),
        "isa": lambda m: " ".join(m.isa) or "none",
        "array": lambda m: form(m.array),
        "array.cpus": lambda m: f"holes elsewhere: {form(m.array)} with {many(len(m.online_cpus), 'CPU')}",
        "caches": lambda m: " ".join(f"{level} {size}" for level, size in m.caches._asdict().items()),
        "gpus": lambda m: ", ".join(gpu.name or "unnamed" for gpu in m.gpus) or "none",
    }[name]
    return value(machine)


def form(array: CpuArray) -> str:
    """Extents and axes: `2 socket x 4 core x 2 smt`."""
    return " x ".join(f"{extent} {axis}" for axis, extent in zip(array.axes, array.shape, strict=True))


def _limits(old: Machine, new: Machine) -> list[Difference]:
    other = old.limits_id != new.limits_id
    was, now = live(old.array, old.allowed_cpus), live(new.array, new.allowed_cpus)
    found = []

    def add(field: str, before: str, after: str, counts: bool) -> None:
        why = "another limits_id" if other and counts else "the limits_id does not depend on this"
        found.append(Difference(field, before, after, NEVER if other and counts else EXACT, why))

    if (was.axes, was.shape, pattern(was)) != (now.axes, now.shape, pattern(now)):
        add("allowed_cpus", _part(old, was), _part(new, now), True)
    elif old.allowed_cpus != new.allowed_cpus:
        add("allowed_cpus", span(old.allowed_cpus), span(new.allowed_cpus), False)
    if old.cpu_quota != new.cpu_quota:
        add("cpu_quota", _quota(old), _quota(new), _floor(old) != _floor(new))
    if _policy(old) != _policy(new) and "unknown" not in (_policy(old), _policy(new)):
        add("memory_policy", _policy(old), _policy(new), sum(1 for node in new.numa_nodes if node.memory_bytes) > 1)
    if other and not any(difference.follows == NEVER for difference in found):
        found.append(Difference("limits_id", old.limits_id, new.limits_id, NEVER, "another limits_id"))
    return found


def _part(machine: Machine, part: CpuArray) -> str:
    return f"{span(machine.allowed_cpus)} ({form(part)})"


def _floor(machine: Machine) -> int | None:
    return None if machine.cpu_quota is None else max(1, int(machine.cpu_quota))


def _quota(machine: Machine) -> str:
    return "none" if machine.cpu_quota is None else f"{machine.cpu_quota:g}"


def _policy(machine: Machine) -> str:
    told = dict(machine.extra).get("memory_policy")
    return (
        ", ".join(f"{name} {said}" for name, said in sorted(told.items())) if isinstance(told, Mapping) else "unknown"
    )


# --- fields that rows depend on, and all others ---


def _environment(old: Machine, new: Machine) -> list[Difference]:
    was, now = dict(old.environment), dict(new.environment)
    found = []
    for name in sorted((was.keys() | now.keys()) - set(SUMMARIES)):
        before, after = _said(was.get(name)), _said(now.get(name))
        if before != after:
            needed = name in NEEDED and was.get(name) is not None
            why = "rows that depend on it" if needed else "no row depends on it"
            found.append(Difference(name, before, after, STALE if needed else EXACT, why))
    return found


def _rest(old: Machine, new: Machine) -> list[Difference]:
    """Fields that no id and no row depends on, short ones with their values."""
    names = ("online_cpus", "offline_cpus", "allowed_mems", "memory_limit_bytes", "numa_nodes", "core_classes")
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in names]
    was, now = dict(old.extra), dict(new.extra)
    extra = sorted((was.keys() | now.keys()) - {*PASSING, "memory_policy"})
    pairs += [(name, was[name], now.get(name)) for name in extra if name in was]
    return [
        Difference(name, _said(before), _said(after), EXACT, "no id and no row depends on it")
        for name, before, after in pairs
        if before != after
    ]


def _said(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return span(value) or "none"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def lines(found: Comparison) -> str:
    """The comparison for people: the verdict, then each field under what follows from it, then the tables."""
    if not found.differences:
        return "\n".join([f"{found.verdict}: nothing differs", *found.tables])
    text = [found.verdict]
    for verdict in reversed(ORDER):
        listed = [difference for difference in found.differences if difference.follows == verdict]
        for why in dict.fromkeys(difference.why for difference in listed):
            text += ["", f"{verdict} ({why})"]
            for field, was, is_now, _, reason in listed:
                text += [f"  {field:<22} was  {was}", f"  {'':<22} is   {is_now}"] if reason == why else []
    return "\n".join([*text, *(["", *found.tables] if found.tables else [])])


# --- stored tables ---


def follows(found: Comparison, tables: Iterable[tuple[str, Table]]) -> Comparison:
    """The comparison with a sentence a table: how many of its rows the differences reach.

    Args:
        found: what `compare` gave.
        tables: (name, table) of those tuned on the first machine.
    """
    changed = {difference.field for difference in found.differences if difference.follows == STALE}
    return found._replace(tables=tuple(_reached(name, table, found.verdict, changed) for name, table in tables))


def _reached(name: str, table: Table, verdict: str, changed: set[str]) -> str:
    rows = [row for section in table.sections for row in section.rows]
    if verdict == NEVER:
        return f"{name}: none of its {many(len(rows), 'row')} is EXACT here"
    reached = [changed & _needs(row) for row in rows]
    stale = [fields for fields in reached if fields]
    if not stale:
        return (
            f"{name}: the one row stays EXACT" if len(rows) == 1 else f"{name}: all {many(len(rows), 'row')} stay EXACT"
        )
    changed_fields = ", ".join(sorted(frozenset().union(*stale)))
    are = "is" if len(stale) == 1 else "are"
    return f"{name}: {len(stale)} of {many(len(rows), 'row')} {are} STALE ({changed_fields})"


def _needs(row: Row) -> set[str]:
    """The environment fields that a row depends on, by the names that a description has for them."""
    build, process = row.choice.build, row.choice.process
    named = {
        "kernel": {"kernel"},
        "compiler": {build.compiler, build.compiler.split("-")[0]},
        "openmp": {process.runtime} if process else set(),
        "nvrtc": {"nvrtc"} if package_of(build.compiler) == "cupy" else set(),
    }
    return {name for field in row.depends for name in named.get(field, {field})}
