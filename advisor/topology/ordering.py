"""Which comes first: reorderings of a machine's array by what its groups are and hold. Used by placement expressions.

Each function takes an array and gives one with the same threads, or fewer. Standard library only, and no `typing` at
run time: the hot path imports this module.
"""

from __future__ import annotations

from advisor.errors import PlacementError
from advisor.topology.array import CpuArray, _prune, _stack, live, ravel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Groups = Sequence[Sequence[int]]

MEMBER = "thread"
"""Name of the axis along which the threads of one group lie after `group`."""


def pack(array: CpuArray) -> CpuArray:
    """At every level the fullest positions first: a team that is filled in touches as few groups as can be.

    Only a ragged array changes; equally full positions keep their order.
    """
    return _reordered(array, lambda cpus: -len(cpus))


def prefer(array: CpuArray, name: str, groups: Groups) -> CpuArray:
    """At every level those positions first that reach into the earliest group.

    Args:
        array: any array.
        name: of the grouping, for messages.
        groups: in order of preference, for example core classes, strongest first.

    Raises:
        PlacementError: the groups are not disjoint, or leave out a thread of the array.
    """
    place = _places(array, name, groups)
    return _reordered(array, lambda cpus: min(place[cpu] for cpu in cpus))


def group(array: CpuArray, name: str, groups: Groups) -> CpuArray:
    """A labelled grouping as an axis: shape (groups, threads of the largest), threads in the order they had.

    Raises:
        PlacementError: as `prefer`.
    """
    place = _places(array, name, groups)
    members: dict[int, list[int]] = {}
    for cpu in ravel(array):
        members.setdefault(place[cpu], []).append(cpu)
    return _stack((name, MEMBER), [members[i] for i in sorted(members)])


def leave(array: CpuArray, count: int, cores: Groups) -> CpuArray:
    """Without the first `count` cores in the array's order: they are left to the rest of the system.

    Args:
        array: any array.
        count: at least 1, fewer than there are cores.
        cores: the threads of each core of the machine.

    Raises:
        PlacementError: no core would be left.
    """
    core_of = {cpu: i for i, threads in enumerate(cores) for cpu in threads}
    order = list(dict.fromkeys(core_of[cpu] for cpu in ravel(array)))
    if not 0 < count < len(order):
        raise PlacementError(
            "cores can be left free only where some remain", got=count, allowed=f"1 to {len(order) - 1} of {len(order)}"
        )
    free = set(order[:count])
    return live(array, [cpu for cpu in ravel(array) if core_of[cpu] not in free])


def _places(array: CpuArray, name: str, groups: Groups) -> dict[int, int]:
    """CPU -> number of its group, for every thread of the array."""
    place: dict[int, int] = {}
    for i, members in enumerate(groups):
        for cpu in members:
            if place.setdefault(cpu, i) != i:
                raise PlacementError(f"the groups of {name} overlap on this machine", got=cpu, next_step=_OTHER)
    missing = [cpu for cpu in ravel(array) if cpu not in place]
    if missing:
        raise PlacementError(f"some CPUs in reach belong to no group of {name}", got=missing[0], next_step=_OTHER)
    return place


_OTHER = "use a grouping that has every CPU once; `advisor probe` shows them"


def _reordered(array: CpuArray, key: Callable[[list[int]], int]) -> CpuArray:
    tree = _prune(array.cpus, array.shape, set(array.cpus))
    return _stack(array.axes, _sorted(tree, key)) if ravel(array) else array


def _sorted(tree: list[object], key: Callable[[list[int]], int]) -> list[object]:
    parts = [_sorted(part, key) if isinstance(part, list) else part for part in tree]
    return sorted(parts, key=lambda part: key(list(_leaves(part))))


def _leaves(tree: object) -> Iterable[int]:
    if isinstance(tree, list):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, int):
        yield tree
