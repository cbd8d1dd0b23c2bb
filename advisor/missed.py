"""What lookups missed since the last tuning, and how the next one starts with it. `advisor.misses` has the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import misses
from advisor.asked import default_sizes
from advisor.errors import AdvisorError
from advisor.kernels import registry
from advisor.pipeline import own_shape
from advisor.records import Pairs, Problem, pairs

if TYPE_CHECKING:
    from advisor.kernels.spec import KernelSpec
    from advisor.tuning import TuneRequest

MOST_SHAPES = 3
"""Problems that nobody named and that are tuned since they were missed, those missed most."""

FAR = 4
"""An n up to so many times beyond the sizes that suit a kernel is added to them; a single odd request for an enormous n
must not cost the budget of all others."""


class CatchUp(NamedTuple):
    """What a tuning may take up of what was missed beside what it was asked: shapes and dtypes, kernels. Its kernels
    are put in order, and where nobody named sizes n are added, in any case."""

    shapes: bool = False
    kernels: bool = False


class Missed(NamedTuple):
    """One problem that so many lookups missed. `shape`, dtype and regime as they were asked for, the rest None or left
    out; `ends`: smallest and largest n of each power of two, ascending."""

    kernel: str
    dtype: str | None
    regime: str | None
    shape: Pairs
    lookups: int
    ends: tuple[int, ...]


class Turns(NamedTuple):
    """What is tuned one after another, and sentences on what is due to misses."""

    turns: tuple[tuple[TuneRequest, str], ...]
    notes: tuple[str, ...]


def read(folder: str) -> tuple[Missed, ...]:
    """The problems that were missed, most often missed first."""
    counts, _ = misses.read(folder)
    found: dict[tuple[Any, ...], Missed] = {}
    for (kernel, dtype, regime, shape, _, _), kept in counts.items():
        key = kernel, dtype, regime, shape
        old = found.get(key, Missed(*key, 0, ()))
        ends = {*old.ends, kept[misses.LOW], kept[misses.HIGH]}
        found[key] = Missed(*key, old.lookups + kept[misses.COUNT], tuple(sorted(ends)))
    return tuple(sorted(found.values(), key=lambda one: -one.lookups))


def turns(asked: TuneRequest, folder: str) -> Turns:
    """What a tuning does, in order: what was missed first.

    Args:
        asked: the request. Where `catch_up` is None nothing is due to misses.
        folder: of the machine, or the device.
    """
    found = read(folder) if asked.catch_up is not None else ()
    added: dict[str, tuple[int, ...]] = {}
    more: list[tuple[TuneRequest, str]] = []
    notes: list[str] = []
    for one in found:
        problem = _problem(one, asked)
        if problem is None:
            continue
        sizes, words = _sizes(one, registry.spec(one.kernel, asked.kernel_dirs))
        if problem == _asked_for(one.kernel, asked):
            added[one.kernel] = (*added.get(one.kernel, ()), *sizes)
            notes += [] if asked.sizes else [_sentence(one, words)]
        elif _may_add(one, asked) and len(more) < MOST_SHAPES:
            more.append((_turn(asked, problem, sizes), one.kernel))
            notes.append(_sentence(one, words))
    order = sorted(asked.kernels, key=lambda name: -sum(one.lookups for one in found if one.kernel == name))
    own = ((asked if asked.sizes else asked._replace(added=added.get(kernel, ())), kernel) for kernel in order)
    return Turns((*more, *own), tuple(notes))


def _may_add(one: Missed, asked: TuneRequest) -> bool:
    """Whether a tuning may take up a problem that it was not asked."""
    allowed = asked.catch_up or CatchUp()
    return allowed.shapes and not asked.sizes and (one.kernel in asked.kernels or allowed.kernels)


def _problem(one: Missed, asked: TuneRequest) -> Problem | None:
    """The problem of a miss at n = 1, what was left open as the request has it; None where that makes no sense."""
    try:
        spec = registry.spec(one.kernel, asked.kernel_dirs)
        given = {**own_shape(spec, dict(asked.shape)), **dict(one.shape)}
        return spec.problem(1, one.dtype or asked.dtype, one.regime or asked.regime, **given)
    except (AdvisorError, TypeError):
        return None


def _asked_for(kernel: str, asked: TuneRequest) -> Problem | None:
    """The problem at n = 1 that the request itself means by a kernel, None where it means none."""
    if kernel not in asked.kernels:
        return None
    spec = registry.spec(kernel, asked.kernel_dirs)
    own = next((one for one in asked.own if one.kernel == kernel), None)
    dtype, shape = (own.dtype, own.shape) if own else (asked.dtype, pairs(own_shape(spec, dict(asked.shape))))
    return spec.problem(1, dtype, asked.regime, **dict(shape))


def _turn(asked: TuneRequest, problem: Problem, added: tuple[int, ...]) -> TuneRequest:
    own = asked._replace(kernels=(problem.kernel,), dtype=problem.dtype, regime=problem.regime, shape=problem.shape)
    return own._replace(added=added)


def _sizes(one: Missed, spec: KernelSpec) -> tuple[tuple[int, ...], str]:
    """The n to be added to the sizes that suit a kernel, so that what was missed lies between tuned n; in words."""
    suit = default_sizes(spec)
    near = [n for n in one.ends if n <= suit[-1] * FAR]
    outside = [n for n in (*near[:1], *near[-1:]) if not suit[0] <= n <= suit[-1]]
    added = tuple(dict.fromkeys(outside))
    words = [f"n = {', '.join(map(str, added))} added"] if added else []
    far = one.ends[-1] > suit[-1] * FAR
    words += [f"n = {one.ends[-1]} left out, over {FAR} times beyond those that suit: --n names it"] if far else []
    return added, "; ".join(words)


def _sentence(one: Missed, words: str) -> str:
    shape = " ".join(f"{name}={value}" for name, value in one.shape)
    about = " ".join(filter(None, [one.kernel, one.dtype, shape, one.regime if one.regime != "warm" else ""]))
    often = f"{one.lookups} lookup{'s' if one.lookups != 1 else ''} missed"
    return f"{often}, so it goes first: {about}{f'; {words}' if words else ''}"


# --- afterwards ---


def clear(folder: str) -> int:
    """Take what the tables now answer out of a folder's misses. Returns how many questions are left."""
    if not os.path.exists(os.path.join(folder, misses.NAME)):
        return 0
    left: list[int] = []

    def change(counts: misses.Counts, other: int) -> tuple[misses.Counts, int]:
        kept = _unanswered(folder, counts)
        left.append(len(kept))
        return kept, other if kept else 0

    misses.update(folder, change)
    return left[0] if left else 0


def _unanswered(folder: str, counts: misses.Counts) -> misses.Counts:
    from advisor.lookup import Policy

    policy = Policy.load(machine=os.path.join(folder, "machine.json"), count_misses=False)

    def answered(key: misses.Key, sizes: Iterable[int]) -> bool:
        kernel, dtype, regime, shape, _, _ = key
        axes = {"dtype": dtype, "regime": regime, **dict(shape)}
        return all(policy.best(kernel, n, **axes).basis in ("EXACT", "INTERPOLATED") for n in sizes)

    return {key: one for key, one in counts.items() if not answered(key, _ends(one))}


def _ends(kept: Sequence[int]) -> tuple[int, int]:
    return kept[misses.LOW], kept[misses.HIGH]
