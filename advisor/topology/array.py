"""A machine as an n-dimensional array of hardware threads, and its algebra.

Vocabulary of the Mathematics of Arrays: shape, take, transpose, ravel. The array is row-major over named axes,
outermost first; its elements are operating-system CPU ids; ABSENT marks a hole (a ragged machine, an offline CPU, a
CPU out of reach). Axes are ordered by containment on the machine at hand, so `l3` lies inside `numa` on one machine
and outside it on another. Standard library only, and no `typing` at run time: the hot path imports this module.

Source: Mullin, "A Mathematics of Arrays" (shape, psi, take, transpose); design.md, "machine as an array".
"""

from __future__ import annotations

from collections import namedtuple

from advisor.errors import PlacementError

TYPE_CHECKING = False  # typing costs 5 to 11 ms at import, more than the whole lookup may take
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import NamedTuple

    class CpuArray(NamedTuple):  # noqa: D101 (documented below, where it is made)
        axes: tuple[str, ...]
        shape: tuple[int, ...]
        cpus: tuple[int, ...]
else:
    CpuArray = namedtuple("CpuArray", ["axes", "shape", "cpus"])
    CpuArray.__doc__ = """A row-major array of CPU ids.

    axes: names, outermost first; shape: extents (each at least 1); cpus: prod(shape) ids, ABSENT where there is none.
    """
    # as text, which costs nothing here: the JSON codec resolves it
    CpuArray.__annotations__ = {"axes": "tuple[str, ...]", "shape": "tuple[int, ...]", "cpus": "tuple[int, ...]"}

ABSENT = -1
"""The element of a hole; never an id, never returned by `ravel`."""

AXIS_ORDER = ("drawer", "book", "socket", "die", "numa", "l3", "cluster", "core", "smt")
"""Tie-break between groupings that are the same partition: outermost first."""


def size(shape: Sequence[int]) -> int:
    """Number of positions of an array of this shape (1 for the empty shape)."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def _strides(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]


def axis_index(array: CpuArray, axis: str) -> int:
    """Position of a named axis.

    Raises:
        PlacementError: the machine has no such axis; the message names those it has.
    """
    if axis not in array.axes:
        raise PlacementError(
            "this machine's array has no such axis",
            got=axis,
            allowed=", ".join(array.axes) or "none",
            next_step="write the placement with the axes that `advisor probe` shows",
        )
    return array.axes.index(axis)


def transpose(array: CpuArray, axes: Sequence[str]) -> CpuArray:
    """The same threads with the axes in the order given; the last axis named varies fastest.

    Args:
        array: any array.
        axes: a permutation of `array.axes`.

    Raises:
        PlacementError: `axes` is not a permutation.
    """
    if sorted(axes) != sorted(array.axes):
        for axis in axes:
            axis_index(array, axis)
        raise PlacementError(
            "transpose needs every axis of the machine once",
            got=" ".join(axes),
            allowed=" ".join(array.axes),
        )
    where = [array.axes.index(axis) for axis in axes]
    shape = tuple(array.shape[i] for i in where)
    strides = _strides(array.shape)
    offsets = [0]
    for i in where:
        offsets = [base + step * strides[i] for base in offsets for step in range(array.shape[i])]
    return CpuArray(tuple(axes), shape, tuple(array.cpus[i] for i in offsets))


def take(array: CpuArray, axis: str, count: int) -> CpuArray:
    """The first `count` positions along one axis; the last ones when `count` is negative.

    Raises:
        PlacementError: no such axis, or |count| is 0 or over the extent.
    """
    k = axis_index(array, axis)
    extent = array.shape[k]
    if not 0 < abs(count) <= extent:
        raise PlacementError(
            f"take along {axis} must stay within its extent on this machine",
            got=count,
            allowed=f"1 to {extent}, or negative from the end",
        )
    first = 0 if count > 0 else extent + count
    inner = size(array.shape[k + 1 :])
    block = extent * inner
    cpus: list[int] = []
    for start in range(0, len(array.cpus), block):
        cpus.extend(array.cpus[start + first * inner : start + (first + abs(count)) * inner])
    return CpuArray(array.axes, (*array.shape[:k], abs(count), *array.shape[k + 1 :]), tuple(cpus))


def ravel(array: CpuArray) -> tuple[int, ...]:
    """The threads in row-major order, holes dropped: worker i runs on `ravel(array)[i]`."""
    return tuple(cpu for cpu in array.cpus if cpu != ABSENT)


def live(array: CpuArray, cpus: Iterable[int]) -> CpuArray:
    """The array restricted to `cpus`, packed: along every axis the positions still occupied come first.

    Packing makes "the first thread of each core" true under a cpuset that left a core only its second thread.
    Extents shrink to what is occupied; an array without any live thread has the shape of all ones and one hole.
    """
    keep = set(cpus)
    return _stack(array.axes, _prune(array.cpus, array.shape, keep))


def pattern(array: CpuArray) -> tuple[object, ...]:
    """How many threads there are in which core of which group, without ids or order: nested tuples, each sorted.

    Two ragged machines may have one shape and differ in this; equal parts of a machine have it in common.
    """
    extent = array.shape[-1] if array.shape else 1
    level: list[object] = [extent - array.cpus[i : i + extent].count(ABSENT) for i in range(0, len(array.cpus), extent)]
    for extent in reversed(array.shape[:-1]):
        level = [tuple(sorted(level[i : i + extent])) for i in range(0, len(level), extent)]  # type: ignore[type-var]
    return tuple(level)


def _prune(cpus: Sequence[int], shape: Sequence[int], keep: set[int]) -> list[object]:
    """Nested lists of the kept ids, empty branches dropped."""
    if len(shape) <= 1:
        return [cpu for cpu in cpus if cpu in keep and cpu != ABSENT]
    step = size(shape[1:])
    parts = (_prune(cpus[i * step : (i + 1) * step], shape[1:], keep) for i in range(shape[0]))
    return [part for part in parts if part]


def _extents(tree: Sequence[object], depth: int) -> list[int]:
    if depth == 1:
        return [max(1, len(tree))]
    below = [_extents(part, depth - 1) for part in tree if isinstance(part, list)]
    return [max(1, len(tree)), *(map(max, zip(*below, strict=True)) if below else [1] * (depth - 1))]


def _fill(tree: Sequence[object], shape: Sequence[int], out: list[int]) -> None:
    if len(shape) == 1:
        ids = [cpu for cpu in tree if isinstance(cpu, int)]
        out.extend(ids + [ABSENT] * (shape[0] - len(ids)))
        return
    for part in tree:
        _fill(part if isinstance(part, list) else [], shape[1:], out)
    out.extend([ABSENT] * (size(shape[1:]) * (shape[0] - len(tree))))


def _stack(axes: tuple[str, ...], tree: list[object]) -> CpuArray:
    if not axes:
        return CpuArray((), (), (ABSENT,))
    shape = _extents(tree, len(axes))
    cpus: list[int] = []
    _fill(tree, shape, cpus)
    return CpuArray(axes, tuple(shape), tuple(cpus))


def _places(groups: Sequence[Iterable[int]]) -> dict[int, int]:
    """CPU id -> number of its group."""
    return {cpu: i for i, group in enumerate(groups) for cpu in group}


def _contains(outer: Sequence[frozenset[int]], inner: Sequence[frozenset[int]]) -> bool:
    """Whether every group of `inner` lies in one group of `outer`. Both partition the same CPUs."""
    place = _places(outer)
    return all(len({place[cpu] for cpu in group}) == 1 for group in inner)


def _is_partition(groups: Sequence[frozenset[int]], cpus: frozenset[int]) -> bool:
    return sum(map(len, groups)) == len(cpus) and frozenset().union(*groups) == cpus


def _rank(name: str) -> int:
    return AXIS_ORDER.index(name) if name in AXIS_ORDER else len(AXIS_ORDER)


def chain(groupings: Mapping[str, Sequence[Sequence[int]]], cpus: Iterable[int]) -> tuple[str, ...]:
    """The groupings that nest on this machine, outermost first; the rest stay labelled groupings.

    A grouping becomes an axis when it partitions the online CPUs and nests with every axis chosen before it. `core`
    is chosen first, then the others in AXIS_ORDER, so a grouping that crosses cores or sockets is the one left out.
    """
    everything = frozenset(cpus)
    sets = {name: [frozenset(g) for g in groups] for name, groups in groupings.items()}
    names = sorted((n for n in sets if sets[n] and _is_partition(sets[n], everything)), key=_rank)
    chosen: list[str] = []
    for name in sorted(names, key=lambda n: n != "core"):
        if all(_contains(sets[name], sets[c]) or _contains(sets[c], sets[name]) for c in chosen):
            chosen.append(name)
    return tuple(sorted(chosen, key=lambda n: (len(sets[n]), _rank(n))))


def build(groupings: Mapping[str, Sequence[Sequence[int]]], cpus: Iterable[int]) -> CpuArray:
    """The array of a machine from its groupings.

    Args:
        groupings: name -> groups of CPU ids, for example {"socket": [[0, 1]], "core": [[0], [1]]}. `core` groups hold
            the hardware threads of one core, in thread order; without `core` every CPU is a core of its own.
        cpus: the online CPU ids.

    Returns:
        An array whose last axis is `smt`; groups at each level in the order of their lowest CPU id.
    """
    online = sorted(set(cpus))
    known = dict(groupings)
    if not _is_partition([frozenset(g) for g in known.get("core", ())], frozenset(online)):
        known["core"] = [[cpu] for cpu in online]
    names = chain(known, online)
    thread_order = {cpu: (i, cpu) for group in known["core"] for i, cpu in enumerate(group)}
    tree = _nest(online, [_places(known[name]) for name in names], thread_order)
    return _stack((*names, "smt"), tree)


def flat(cpus: Iterable[int]) -> CpuArray:
    """The array of a machine whose kernel tells no grouping: one axis, `cpu`, and nothing of what is near what."""
    ids = tuple(sorted(set(cpus)))
    return CpuArray(("cpu",), (len(ids),), ids)


def is_flat(array: CpuArray) -> bool:
    """Whether nothing is known of the threads but their ids; then placements could only guess."""
    return array.axes == ("cpu",)


def _nest(
    cpus: Sequence[int], levels: Sequence[Mapping[int, int]], thread_order: Mapping[int, tuple[int, int]]
) -> list[object]:
    """Nested lists of the ids, one depth a level; groups in the order of their lowest id, as `cpus` ascends."""
    if not levels:
        return [*sorted(cpus, key=lambda cpu: thread_order[cpu])]
    members: dict[int, list[int]] = {}
    for cpu in cpus:
        members.setdefault(levels[0][cpu], []).append(cpu)
    return [_nest(group, levels[1:], thread_order) for group in members.values()]


def part(array: CpuArray, index: int, of: int) -> CpuArray:
    """Part `index` of `of` disjoint parts: whole cores, contiguous, sizes differing by one core at most.

    Raises:
        PlacementError: index is not in 0 .. of-1, or there are fewer cores than parts.
    """
    step = array.shape[-1] if array.shape and not is_flat(array) else 1
    rows = [array.cpus[i : i + step] for i in range(0, len(array.cpus), step)]
    cores = [row for row in rows if any(cpu != ABSENT for cpu in row)]
    if not 0 <= index < of:
        raise PlacementError(
            "an instance number counts from 0 within the number of instances", got=index, allowed=f"0 to {of - 1}"
        )
    if of > len(cores):
        raise PlacementError("every instance needs a core of its own", got=of, allowed=f"1 to {len(cores)} instances")
    first, last = index * len(cores) // of, (index + 1) * len(cores) // of
    return live(array, [cpu for row in cores[first:last] for cpu in row if cpu != ABSENT])
