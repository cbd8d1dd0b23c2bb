"""Placement expressions: machine-independent text whose value on a machine is an ordered list of CPU ids.

Grammar: steps separated by `|`, read left to right; an implicit ravel ends it.

    take AXIS COUNT          the first COUNT positions of an axis, the last ones when COUNT is negative
    transpose AXIS AXIS ...  every axis once; the last one named varies fastest
    prefer GROUPING          at every level its first groups first (class: the strongest cores first)
    group GROUPING           a grouping, also one that is no axis here, becomes the axes GROUPING and thread
    pack                     at every level the fullest positions first, where limits left some emptier than others
    leave COUNT              without the first COUNT cores of the order so far
    none                     alone: threads are not pinned

The empty expression is the ravel of the array as it stands (compact, SMT siblings next to each other). Tables store
expressions, never CPU ids. Standard library only: the hot path imports this module.
"""

from __future__ import annotations

from advisor.errors import PlacementError
from advisor.topology import ordering
from advisor.topology.array import ABSENT, CpuArray, is_flat, live, ravel, take, transpose
from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Groupings = Mapping[str, Sequence[Sequence[int]]]
    Known = Groupings | Callable[[], Groupings] | None

UNPINNED = "none"
CLASS = "class"
"""The grouping of hybrid machines: kinds of cores, strongest first. Machines with one kind have no such grouping."""

_NEXT = "see `advisor probe` for the axes and groupings, docs/placements.md for the grammar"


def _words(verb: str, words: list[str], kinds: tuple[type, ...], form: str) -> list[str | int]:
    """The words after a verb, whole numbers read."""
    try:
        if len(words) != len(kinds):
            raise ValueError("too few words, or too many")
        return [kind(word) for kind, word in zip(kinds, words, strict=True)]
    except ValueError as error:
        rule = f"{verb} needs {form.partition(' ')[2] or 'nothing after it'}"
        raise PlacementError(rule, got=" ".join(words), allowed=form, next_step=_NEXT) from error


def _take(value: CpuArray, words: list[str], _: _Here) -> CpuArray:
    axis, count = _words("take", words, (str, int), "take AXIS COUNT")
    return take(value, axis, count)  # type: ignore[arg-type]


def _transpose(value: CpuArray, words: list[str], _: _Here) -> CpuArray:
    return transpose(value, words)


def _prefer(value: CpuArray, words: list[str], here: _Here) -> CpuArray:
    (name,) = _words("prefer", words, (str,), "prefer GROUPING")
    return ordering.prefer(value, str(name), here.groups(str(name)))


def _group(value: CpuArray, words: list[str], here: _Here) -> CpuArray:
    (name,) = _words("group", words, (str,), "group GROUPING")
    return ordering.group(value, str(name), here.groups(str(name)))


def _pack(value: CpuArray, words: list[str], _: _Here) -> CpuArray:
    _words("pack", words, (), "pack")
    return ordering.pack(value)


def _leave(value: CpuArray, words: list[str], here: _Here) -> CpuArray:
    (count,) = _words("leave", words, (int,), "leave COUNT")
    return ordering.leave(value, count, here.cores())  # type: ignore[arg-type]


VERBS = {
    "take": _take,
    "transpose": _transpose,
    "prefer": _prefer,
    "group": _group,
    "pack": _pack,
    "leave": _leave,
}


class _Here:
    """The machine that an expression is evaluated on, beside the array that its steps change."""

    def __init__(self, array: CpuArray, known: Known) -> None:
        self._array = array
        self._known = known

    def cores(self) -> list[tuple[int, ...]]:
        """The threads of each core."""
        return core_rows(self._array)

    def groups(self, name: str) -> Sequence[Sequence[int]]:
        """The groups of a grouping; those of an axis of the array where nothing else is told.

        Raises:
            PlacementError: the machine has no such grouping.
        """
        known = (self._known() if callable(self._known) else self._known) or {}
        if name in known:
            return known[name]
        if name in self._array.axes:
            return axis_groups(self._array, name)
        why = "this machine's cores are of one kind, or of kinds that nobody tells: there is no grouping"
        raise PlacementError(
            why if name == CLASS else "this machine has no such grouping",
            got=name,
            allowed=", ".join(dict.fromkeys([*self._array.axes, *known])) or "none",
            next_step=_NEXT,
        )


def axis_groups(array: CpuArray, axis: str) -> list[tuple[int, ...]]:
    """The groups of CPU ids that one position of an axis stands for, holes dropped; each `smt` position is a thread."""
    step = 1
    for extent in array.shape[array.axes.index(axis) + 1 :]:
        step *= extent
    rows = (array.cpus[i : i + step] for i in range(0, len(array.cpus), step))
    return [ids for row in rows if (ids := tuple(cpu for cpu in row if cpu != ABSENT))]


def core_rows(array: CpuArray) -> list[tuple[int, ...]]:
    """The threads of each core of an array whose last axis is `smt`; each thread for itself on any other."""
    if array.axes and array.axes[-1] == "smt" and len(array.axes) > 1:
        return axis_groups(array, array.axes[-2])
    return [(cpu,) for cpu in ravel(array)]


def steps(expression: str) -> list[list[str]]:
    """The steps of an expression as lists of words.

    Raises:
        PlacementError: an unknown verb or an empty step.
    """
    if not isinstance(expression, str):
        raise PlacementError("a placement is text", got=expression, next_step=_NEXT)
    if not expression.strip():
        return []
    words = [step.split() for step in expression.split("|")]
    for step in words:
        if not step or step[0] not in VERBS:
            raise PlacementError(
                "every step of a placement starts with a verb",
                got=" ".join(step) or expression,
                allowed=", ".join(VERBS),
                next_step=_NEXT,
            )
    return words


def evaluate(
    expression: str, array: CpuArray, mask: Iterable[int], threads: int | None = None, groupings: Known = None
) -> tuple[int, ...] | None:
    """The CPU list of an expression under a live mask: worker i runs on element i.

    Args:
        expression: see the grammar above.
        array: the whole machine.
        mask: the CPU ids in reach now; nothing outside it is ever returned.
        threads: how many to return; all when None.
        groupings: name -> groups of CPU ids, or a function that gives them and is called only when one is named. The
            array's own axes need not be among them.

    Returns:
        CPU ids, or None when the expression is `none` (not pinned).

    Raises:
        PlacementError: the expression makes no sense on this machine, or yields fewer CPUs than threads.
    """
    if isinstance(expression, str) and expression.strip() == UNPINNED:
        return None
    value, here = live(array, mask), _Here(array, groupings)
    for verb, *words in steps(expression):
        value = VERBS[verb](value, words, here)
    cpus = ravel(value)
    if threads is None:
        return cpus
    if not 0 < threads <= len(cpus):
        raise PlacementError(
            "a placement must offer a CPU to every thread",
            got=threads,
            allowed=f"1 to {many(len(cpus), 'thread')} for {expression!r} on this machine",
            next_step="ask for fewer threads or widen the mask",
        )
    return cpus[:threads]


def default_team(array: CpuArray, mask: Iterable[int], budget: int, groupings: Known = None) -> tuple[int, str]:
    """The careful rule for a machine nobody tuned: the physical cores of one NUMA domain, within the budget.

    Of cores of several kinds only the strongest in reach: equal shares of work wait for the slowest core.

    Args:
        array: the whole machine.
        mask: the CPU ids in reach.
        budget: CPUs that the quota pays for, at least 1.
        groupings: as for `evaluate`; only `class` counts.

    Returns:
        (threads, placement expression).
    """
    value = live(array, mask)
    kinds = _kinds_in_reach(value, groupings)
    if is_flat(value):
        return max(1, min(len(kinds[0] if kinds else ravel(value)), budget)), UNPINNED
    words = _first_domain(value)
    if kinds:
        words = [f"prefer {CLASS}", *words, f"group {CLASS}", f"take {CLASS} 1"]
    expression = " | ".join(words)
    cores = evaluate(expression, array, mask, groupings={CLASS: kinds}) or ()
    return max(1, min(len(cores), budget)), expression


def _first_domain(value: CpuArray) -> list[str]:
    """Steps to one thread of each core of the first NUMA domain, or socket where there are no domains."""
    domain = next((axis for axis in ("numa", "socket") if axis in value.axes), None)
    outer = value.axes[: value.axes.index(domain) + 1] if domain else ()
    words = [f"take {axis} 1" for axis in outer if value.shape[value.axes.index(axis)] > 1]
    if value.shape and value.shape[-1] > 1:
        words.append(f"take {value.axes[-1]} 1")
    return words


def _kinds_in_reach(value: CpuArray, groupings: Known) -> list[tuple[int, ...]]:
    """The kinds of cores of the threads in reach, strongest first; none where all are of one kind."""
    known = (groupings() if callable(groupings) else groupings) or {}
    inside = set(ravel(value))
    kinds = [tuple(cpu for cpu in group if cpu in inside) for group in known.get(CLASS, ())]
    kinds = [kind for kind in kinds if kind]
    return kinds if len(kinds) > 1 and inside <= {cpu for kind in kinds for cpu in kind} else []
