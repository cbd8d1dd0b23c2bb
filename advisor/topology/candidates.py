"""The placements worth measuring on a machine, and words for them. Not on the hot path: tables hold their text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from advisor.errors import PlacementError
from advisor.records import Machine
from advisor.topology.array import CpuArray, is_flat, live
from advisor.topology.ordering import MEMBER, pack
from advisor.topology.placement import CLASS, UNPINNED, evaluate, steps

Groupings = Mapping[str, Sequence[Sequence[int]]]

INNER = ("core", "smt")
"""Groupings that no team is dealt over: every order is one of cores, or of threads, anyway."""


class Class(NamedTuple):
    """Placements whose first threads run on one and the same set of CPUs; the simplest stands for all."""

    expression: str
    cpus: tuple[int, ...]
    equals: tuple[str, ...] = ()


def groupings(machine: Machine) -> dict[str, Sequence[Sequence[int]]]:
    """Every grouping of a machine that placements may name; `class` where its cores are of several kinds."""
    found = dict(machine.groupings)
    if len(machine.core_classes) > 1:
        found.setdefault(CLASS, tuple(kind.cpus for kind in machine.core_classes))
    return found


def candidates(array: CpuArray, known: Groupings | None = None) -> tuple[str, ...]:
    """Expressions worth measuring on this (live) array, simplest first: each is another order of its threads.

    Cores first and then SMT siblings, filling one group after another (compact), the fullest groups first where limits
    left some emptier, the strongest cores first where they differ; the same dealing threads out round robin over each
    outer axis, and each grouping that is no axis, with several positions (spread); siblings side by side where there
    are any. Only `none` where nothing is known of what is near what.

    Args:
        array: what is in reach, packed (see `array.live`).
        known: the machine's groupings, see `groupings`.
    """
    if is_flat(array):
        return (UNPINNED,)
    found: dict[tuple[int, ...], str] = {}
    for expression in _listed(array, known or {}):
        cpus = _order(expression, array, known)
        if cpus:
            found.setdefault(cpus, expression)
    return tuple(found.values())


def _order(expression: str, array: CpuArray, known: Groupings | None) -> tuple[int, ...] | None:
    """The whole order of an expression, None where it makes no sense here (a grouping that overlaps, say)."""
    try:
        return evaluate(expression, array, array.cpus, groupings=known)
    except PlacementError:
        return None


def _listed(array: CpuArray, known: Groupings) -> Iterable[str]:
    if len(array.axes) < 2:
        yield ""
        return
    outer, siblings = array.axes[:-1], array.shape[-1] > 1
    first = [*(["pack"] if pack(array) != array else []), *([f"prefer {CLASS}"] if CLASS in known else [])]
    compact = [f"transpose smt {' '.join(outer)}"] if siblings else []
    yield " | ".join([*first, *compact])
    for axis, extent in zip(outer[:-1], array.shape, strict=False):
        if extent > 1:
            yield f"transpose smt {' '.join([*(a for a in reversed(outer) if a != axis), axis])}"
    for axis in outer[1:-1] if first == ["pack"] else ():  # with several kinds of cores the fullest group may be weak
        yield " | ".join([*compact, f"group {axis}", "pack"])
    for name in known:
        if name not in (*array.axes, *INNER, CLASS) and len(_reached(known[name], array)) > 1:
            yield " | ".join([*compact, f"group {name}"])
            yield " | ".join([*compact, f"group {name}", f"transpose {MEMBER} {name}"])
    if siblings:
        yield " | ".join(first)
    if first and compact:
        yield compact[0]


def _reached(groups: Iterable[Sequence[int]], array: CpuArray) -> list[Sequence[int]]:
    inside = set(array.cpus)
    return [group for group in groups if inside.intersection(group)]


def classes(machine: Machine, threads: int, first: str | None = None) -> tuple[Class, ...]:
    """The different sets of CPUs that a team of `threads` can be placed on, each with all its names.

    Args:
        machine: of it, the part in reach.
        threads: at most the CPUs in reach.
        first: an expression that stands for its equals, before all others.
    """
    mask, known = machine.allowed_cpus, groupings(machine)
    part = live(machine.array, mask)
    listed = [*([] if first is None else [first]), *candidates(part, known)]
    found: dict[frozenset[int], Class] = {}
    for expression in dict.fromkeys(listed):
        cpus = evaluate(expression, machine.array, mask, threads, known) or ()
        same = found.get(frozenset(cpus))
        if same is None:
            found[frozenset(cpus)] = Class(expression, cpus)
        else:
            found[frozenset(cpus)] = same._replace(equals=(*same.equals, expression))
    return tuple(found.values())


def describe(expression: str, array: CpuArray) -> str:
    """A few words for people: compact, spread over AXIS, siblings together, not pinned, or the expression itself."""
    if expression.strip() == UNPINNED:
        return "not pinned"
    words = steps(expression)
    parts = [_named(step) for step in words if step[0] in ("pack", "prefer", "leave")]
    rest = [step for step in words if step[0] not in ("pack", "prefer", "leave")]
    order = _ordered(rest, array)
    return expression if order is None or None in parts else ", ".join([order, *filter(None, parts)])


def _named(step: list[str]) -> str | None:
    if step == ["prefer", CLASS]:
        return "strongest cores first"
    if step[0] == "leave" and len(step) == 2:
        return f"first {step[1]} core{'s' if step[1] != '1' else ''} left free"
    return "fullest groups first" if step == ["pack"] else None


def _ordered(words: list[list[str]], array: CpuArray) -> str | None:
    """Words for the steps that say in which order groups are filled."""
    if not words:
        return "compact" if not array.shape or array.shape[-1] == 1 else "SMT siblings together"
    groups = [step[1] for step in words if step[0] == "group"]
    dealt = bool(groups) and words[-1] == ["transpose", MEMBER, groups[-1]]
    if groups and (dealt or words[-1][0] == "group"):
        return f"spread over {groups[-1]}" if dealt else f"compact in {groups[-1]}"
    if len(words) != 1 or words[0][0] != "transpose" or words[0][1] != "smt":
        return None
    order = words[0][1:]
    return "compact, one thread a core first" if tuple(order[1:]) == array.axes[:-1] else f"spread over {order[-1]}"
