"""The ladder: ways to answer for a machine that was never tuned, and how far each was off on those that were.

- nearest: what the most similar machine measured to be best.
- common: what does best on all machines together, by geometric mean.
- learned: a model of time over array shape, caches, bandwidth and n (`learned.py`).
- model: traffic, arithmetic and fork-join alone (`costs.py`), with what an untuned machine would build.

The first two carry threads over by a rule (`portable.RULES`). Every machine that is known is left out in turn, the
others answer for it, and its own times say how far off that is; the rung that was off least answers first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from advisor.records import Choice
from advisor.search.elsewhere import Cell, Elsewhere, Group
from advisor.search.learned import Learned, learn
from advisor.search.portable import RULES, Portable, carried, portable
from advisor.search.traits import Spot, distance

RUNGS = ("nearest", "common", "learned", "model")
"""In the order in which they answer where nothing speaks for another."""

NEAR_N = 2.0
"""What was measured at up to so many times n, or so many times less, speaks for n."""

MODELS = 3
"""Distinct models of machine below which no validated regret is claimed: one silicon says little of another."""

LEAST_CHECKED = 0.5
"""Share of answers whose time must be known on the machine left out for a regret to be claimed."""

Modelled = Callable[[Elsewhere, Group, int], Portable | None]
"""What the cost model takes on a known machine; None where it knows too little."""


class Way(NamedTuple):
    """A rung with its rule; no rule where threads are predicted or modelled."""

    rung: str
    rule: str = ""


class Asked(NamedTuple):
    """Whom an answer is for: the machine, which choices it can run, the problem, the process parts that count."""

    spot: Spot
    runs: Callable[[Portable], bool]
    group: Group
    n: int
    processes: frozenset[tuple[str, int | None, str]] | None = None


class Candidate(NamedTuple):
    """A choice carried over. `logs`: log of its time over the best, of each machine that knows it by place; `like`: the
    choice that did best of those it stands for."""

    what: Portable
    logs: dict[int, float]
    like: Choice


class Guess(NamedTuple):
    """What a way takes, the machines that speak for it, and how far they or the model's trees disagree (log).

    `off`: log of its time over the best of whatever process part, the mean of those machines; None: it was predicted.
    """

    what: Portable
    like: Choice | None
    machines: tuple[str, ...]
    spread: float
    off: float | None = None


class Checked(NamedTuple):
    """How far a way was off on machines left out: log regret of each answer, None where its time there is unknown but
    counted by `counted` (that of the middle of what was measured)."""

    known: tuple[float, ...]
    counted: tuple[float, ...]

    @property
    def rank(self) -> float:
        """Mean log regret, answers of unknown time counted as the middle; infinite without any."""
        return statistics.fmean(self.counted) if self.counted else math.inf

    @property
    def regret(self) -> float | None:
        """Geometric mean of time over the best known time; None where too few times are known."""
        enough = len(self.known) >= max(1.0, LEAST_CHECKED * len(self.counted))
        return max(1.0, math.exp(statistics.fmean(self.known))) if enough else None


class Ladder(NamedTuple):
    """The ways, best first, with what checking said of each; `models`: distinct models of machine behind it."""

    ways: tuple[tuple[Way, Checked], ...]
    models: int

    def claimed(self, way: Way) -> float | None:
        """The validated regret of a way: None below `MODELS` distinct models."""
        return dict(self.ways)[way].regret if self.models >= MODELS else None


# --- what others say of one problem ---


def cell_at(machine: Elsewhere, group: Group, n: int) -> Cell:
    """What a machine measured at n, or at the nearest n within `NEAR_N`; empty where there is nothing."""
    cells = machine.cells.get(group, {})
    near = [m for m in cells if max(m / n, n / m) <= NEAR_N]
    return cells[min(near, key=lambda m: (max(m / n, n / m), m))] if near else {}


def candidates(machines: Sequence[Elsewhere], asked: Asked, rule: str) -> tuple[Candidate, ...]:
    """Everything that was measured elsewhere at this problem and can run here, with threads by one rule."""
    found: dict[Portable, Candidate] = {}
    for place, machine in enumerate(machines):
        cell = cell_at(machine, asked.group, asked.n)
        best = min((timed.ns for timed in cell.values()), default=1.0)
        for what, timed in cell.items():
            here = carried(what, machine.spot, asked.spot, rule)
            if asked.runs(here) and (asked.processes is None or here.process in asked.processes):
                log = math.log(timed.ns / best)
                known = found.setdefault(here, Candidate(here, {}, timed.choice))
                if log < min(known.logs.values(), default=math.inf):
                    found[here] = known._replace(like=timed.choice)
                known.logs[place] = min(log, known.logs.get(place, math.inf))
    return tuple(found.values())


def knows(machines: Sequence[Elsewhere], asked: Asked, what: Portable) -> bool:
    """Whether somebody measured, at this problem, what a choice becomes here by any rule."""
    return any(one.what == what for rule in RULES for one in candidates(machines, asked, rule))


def nearest(machines: Sequence[Elsewhere], asked: Asked, rule: str) -> Guess | None:
    """The best choice of the most similar machine that knows the problem."""
    listed = candidates(machines, asked, rule)
    order = sorted(range(len(machines)), key=lambda i: (distance(machines[i].spot.traits, asked.spot.traits), i))
    for place in order:
        known = [one for one in listed if place in one.logs]
        if known:
            best = min(known, key=lambda one: (one.logs[place], one.what.threads, repr(one.what)))
            return Guess(best.what, best.like, (machines[place].name,), _spread(best), best.logs[place])
    return None


def common(machines: Sequence[Elsewhere], asked: Asked, rule: str) -> Guess | None:
    """The choice with the least geometric mean over the machines that know the problem, of equals the least worst.

    Where a machine does not know a choice, it counts as the middle of what that machine measured.
    """
    listed = candidates(machines, asked, rule)
    middle = middles(listed)

    def score(one: Candidate) -> tuple[float, float, int, str]:
        logs = [one.logs.get(place, log) for place, log in middle.items()]
        return statistics.fmean(logs), max(logs), one.what.threads, repr(one.what)

    if not listed:
        return None
    best = min(listed, key=score)
    names, off = tuple(machines[p].name for p in sorted(best.logs)), statistics.fmean(best.logs.values())
    return Guess(best.what, best.like, names, _spread(best), off)


def middles(listed: Sequence[Candidate]) -> dict[int, float]:
    """The middle of what each machine measured, by its place: what counts for a choice that it does not know."""
    places = sorted({place for one in listed for place in one.logs})
    return {p: statistics.median(one.logs[p] for one in listed if p in one.logs) for p in places}


def _spread(one: Candidate) -> float:
    """How far machines disagree about a choice; that of one which a single machine knows is unknown: the largest."""
    return statistics.pstdev(one.logs.values()) if len(one.logs) > 1 else math.inf


def learned(machines: Sequence[Elsewhere], asked: Asked, model: Learned | None) -> Guess | None:
    """The choice, of all that any rule carries over, that a model thinks fastest here."""
    if model is None:
        return None
    listed = {one.what: one for rule in RULES for one in candidates(machines, asked, rule)}
    if not listed:
        return None
    means, spreads = model.expected(list(listed), asked.spot, asked.n)
    best = min(range(len(means)), key=lambda i: (means[i], i))
    one = list(listed.values())[best]
    return Guess(one.what, one.like, tuple(machine.name for machine in machines), float(spreads[best]))


# --- checking ---


def folds(machines: Sequence[Elsewhere]) -> Iterator[tuple[Elsewhere, tuple[Elsewhere, ...]]]:
    """Each machine with the others that may answer for it: from `MODELS` models on, none of its own silicon."""
    apart = len({machine.model for machine in machines}) >= MODELS
    for one in machines:
        others = tuple(m for m in machines if (m.model != one.model if apart else m is not one))
        if others:
            yield one, others


def check(
    machines: Sequence[Elsewhere],
    group: Group,
    runs: Callable[[Elsewhere, Portable], bool],
    modelled: Modelled,
) -> Ladder:
    """The ways in the order of how far each was off with every machine left out in turn.

    Args:
        machines: those known.
        group: the problem without its n.
        runs: whether a machine can run a choice.
        modelled: what the cost model takes on one.
    """
    found: dict[Way, list[tuple[float | None, float]]] = {way: [] for way in _ways()}
    for one, others in folds([machine for machine in machines if group in machine.cells]):
        model = learn(others, group)
        for n, cell in sorted(one.cells[group].items()):
            asked = Asked(one.spot, lambda what, at=one: runs(at, what), group, n)  # type: ignore[misc]
            for way, what in _answers(others, asked, model, modelled(one, group, n)):
                found[way].append(_off(cell, what))
    checked = [(way, _checked(offs)) for way, offs in found.items()]
    ranked = sorted(checked, key=lambda pair: (round(pair[1].rank, 3), RUNGS.index(pair[0].rung)))
    return Ladder(tuple(ranked), len({machine.model for machine in machines if group in machine.cells}))


def _ways() -> tuple[Way, ...]:
    return (
        *(Way("nearest", rule) for rule in RULES),
        *(Way("common", rule) for rule in RULES),
        Way("learned"),
        Way("model"),
    )


def _answers(
    machines: Sequence[Elsewhere], asked: Asked, model: Learned | None, modelled: Portable | None
) -> Iterator[tuple[Way, Portable]]:
    for way in _ways():
        guess = guessed(way, machines, asked, model)
        if guess is not None:
            yield way, guess.what
    if modelled is not None:
        yield Way("model"), modelled


def guessed(way: Way, machines: Sequence[Elsewhere], asked: Asked, model: Learned | None) -> Guess | None:
    """What one way takes here; None where it knows nothing, and for the cost model, which needs no machines."""
    if way.rung == "nearest":
        return nearest(machines, asked, way.rule)
    if way.rung == "common":
        return common(machines, asked, way.rule)
    return learned(machines, asked, model) if way.rung == "learned" else None


def _off(cell: Mapping[Portable, object], what: Portable) -> tuple[float | None, float]:
    """Log regret of a choice on a machine: what is known, and what counts where it is not."""
    times = {known: timed.ns for known, timed in cell.items()}  # type: ignore[attr-defined]
    best, middle = min(times.values()), statistics.median(times.values())
    alike = [ns for known, ns in times.items() if _same_program(known, what)]
    if what in times:
        return math.log(times[what] / best), math.log(times[what] / best)
    # of a program that was tried only with threads that wait otherwise, that time counts, and claims nothing
    return None, math.log((min(alike) if alike else middle) / best)


def _same_program(one: Portable, other: Portable) -> bool:
    return (one.variant, one.knobs, one.threads) == (other.variant, other.knobs, other.threads)


def _checked(offs: Sequence[tuple[float | None, float]]) -> Checked:
    return Checked(tuple(known for known, _ in offs if known is not None), tuple(counted for _, counted in offs))


def default_of(machine: Elsewhere, group: Group, threads: int) -> Portable | None:
    """What an untuned machine would build, with another number of threads."""
    choice = machine.defaults.get(group)
    return None if choice is None else portable(choice)._replace(threads=threads)
