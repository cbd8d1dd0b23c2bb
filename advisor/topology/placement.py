"""Placement expressions: machine-independent text whose value on a machine is an ordered list of CPU ids.

Grammar: steps separated by `|`, read left to right; an implicit ravel ends it.

    take AXIS COUNT          the first COUNT positions of an axis, the last ones when COUNT is negative
    transpose AXIS AXIS ...  every axis of the machine once; the last one named varies fastest
    none                     alone: threads are not pinned

The empty expression is the ravel of the array as it stands (compact, SMT siblings next to each other). Tables store
expressions, never CPU ids. Standard library only: the hot path imports this module.
"""

from __future__ import annotations

from advisor.errors import PlacementError
from advisor.topology.array import CpuArray, is_flat, live, ravel, take, transpose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

UNPINNED = "none"
_NEXT = "see `advisor probe` for the axes, docs/placements.md for the grammar"


def _take(array: CpuArray, words: list[str]) -> CpuArray:
    try:
        axis, count = words[0], int(words[1])
    except (IndexError, ValueError) as error:
        raise PlacementError(
            "take needs an axis and a whole number", got=" ".join(words), allowed="take AXIS COUNT", next_step=_NEXT
        ) from error
    if len(words) != 2:
        raise PlacementError(
            "take needs an axis and a whole number, nothing more",
            got=" ".join(words),
            allowed="take AXIS COUNT",
            next_step=_NEXT,
        )
    return take(array, axis, count)


VERBS = {"take": _take, "transpose": transpose}


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
    expression: str, array: CpuArray, mask: Iterable[int], threads: int | None = None
) -> tuple[int, ...] | None:
    """The CPU list of an expression under a live mask: worker i runs on element i.

    Args:
        expression: see the grammar above.
        array: the whole machine.
        mask: the CPU ids in reach now; nothing outside it is ever returned.
        threads: how many to return; all when None.

    Returns:
        CPU ids, or None when the expression is `none` (not pinned).

    Raises:
        PlacementError: the expression makes no sense on this machine, or yields fewer CPUs than threads.
    """
    if isinstance(expression, str) and expression.strip() == UNPINNED:
        return None
    value = live(array, mask)
    for verb, *words in steps(expression):
        value = VERBS[verb](value, words)
    cpus = ravel(value)
    if threads is None:
        return cpus
    if not 0 < threads <= len(cpus):
        raise PlacementError(
            "a placement must offer a CPU to every thread",
            got=threads,
            allowed=f"1 to {len(cpus)} threads for {expression!r} on this machine",
            next_step="ask for fewer threads or widen the mask",
        )
    return cpus[:threads]


def candidates(array: CpuArray) -> tuple[str, ...]:
    """Expressions worth measuring on this (live) array, simplest first: each is another order of its threads.

    Cores first and then SMT siblings, filling one group after another (compact); the same dealing threads out round
    robin over each outer axis with several positions (spread); siblings side by side where there are any. Only `none`
    where nothing is known of what is near what.
    """
    if is_flat(array):
        return (UNPINNED,)
    if len(array.axes) < 2:
        return ("",)
    outer = array.axes[:-1]
    found = [f"transpose smt {' '.join(outer)}" if array.shape[-1] > 1 else ""]
    for axis, extent in zip(outer[:-1], array.shape, strict=False):
        if extent > 1:
            found.append(f"transpose smt {' '.join([*(a for a in reversed(outer) if a != axis), axis])}")
    if array.shape[-1] > 1:
        found.append("")
    return tuple(found)


def describe(expression: str, array: CpuArray) -> str:
    """A few words for people: compact, spread over AXIS, siblings together, not pinned, or the expression itself."""
    if expression.strip() == UNPINNED:
        return "not pinned"
    if not expression.strip():
        return "compact" if not array.shape or array.shape[-1] == 1 else "SMT siblings together"
    words = steps(expression)
    if len(words) == 1 and words[0][0] == "transpose":
        order = words[0][1:]
        if order[0] == "smt" and tuple(order[1:]) == array.axes[:-1]:
            return "compact, one thread a core first"
        if order[0] == "smt":
            return f"spread over {order[-1]}"
    return expression


def default_team(array: CpuArray, mask: Iterable[int], budget: int) -> tuple[int, str]:
    """The careful rule for a machine nobody tuned: the physical cores of one NUMA domain, within the budget.

    Args:
        array: the whole machine.
        mask: the CPU ids in reach.
        budget: CPUs that the quota pays for, at least 1.

    Returns:
        (threads, placement expression).
    """
    value = live(array, mask)
    if is_flat(value):
        return max(1, min(len(ravel(value)), budget)), UNPINNED
    domain = next((axis for axis in ("numa", "socket") if axis in value.axes), None)
    outer = value.axes[: value.axes.index(domain) + 1] if domain else ()
    words = [f"take {axis} 1" for axis in outer if value.shape[value.axes.index(axis)] > 1]
    if value.shape and value.shape[-1] > 1:
        words.append(f"take {value.axes[-1]} 1")
    expression = " | ".join(words)
    cores = evaluate(expression, array, mask) or ()
    return max(1, min(len(cores), budget)), expression
