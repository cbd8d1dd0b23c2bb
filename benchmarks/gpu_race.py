"""The part `race`: a table's choice, the best own variants, the libraries' backends and the read floor take turns.

Everything here measures; what is slower than what is said by gpu_judge.py. One sample each in every round, in another
order each time, all in one process and in the cold regime: operands rotate through more than twice the L2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpu_ground import Ground, Tuned, problem_of, table_choice, warps
from kernel_race import Refused, sampler, take_turns

from advisor.codec import to_json
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.memory import is_evicted, sets
from advisor.kernels.header import LIBRARY_GPU_LANGUAGES
from advisor.kernels.memory import operand_bytes
from advisor.records import Choice, Measurement, Problem
from advisor.search.samples import p25

ROUNDS = 24
"""Rounds of a race: a difference of 1.5 % needs 20 to 40. Source: docs/search.md."""

LOOK = Ask(3, 30.0)
NEAR, MOST_LIBRARIES, MOST_FLOORS = 1.25, 3, 2
"""Libraries race that look at most so many times as slow as the best of them, at most three; the two fastest floors."""

ONE_WARP, MORE_WARPS = "split_w1", "split_w4"
"""The pair that differs in the warps of a block alone."""

MOST_LOOKS = 6
"""Choices of a variant that are looked at where a tuning left no look at it."""


class Entrant(NamedTuple):
    """Who races: name of its samples, choice, own, library or floor, what it stands for."""

    name: str
    choice: Choice
    kind: str
    roles: tuple[str, ...]


class Field(NamedTuple):
    """Who races in a row, why others do not, and the clocks that a look found."""

    entrants: tuple[Entrant, ...]
    left_out: dict[str, str]
    conditions: dict[str, Any]


class Looks:
    """First looks of one row: times in ns, and why there are none."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.ns: dict[Choice, float] = {}
        self.failed: dict[str, str] = {}
        self.conditions: dict[str, Any] = {}

    def best(self, problem: Problem, choices: Iterable[Choice], keep: int = 1) -> list[Choice]:
        """Look at some choices; the fastest of them, fastest first. Fewer where fewer have a time."""
        pool = self.ground.pool if problem.kernel == self.ground.spec.name else self.ground.floor
        listed = list(dict.fromkeys(choices))
        pool.prepare(problem, [one for one in listed if one not in self.ns])
        for choice in listed:
            if choice not in self.ns:
                self._take(pool.measure(problem, choice, LOOK), label(choice))
        return sorted((one for one in listed if one in self.ns), key=self.ns.__getitem__)[:keep]

    def _take(self, found: Measurement, name: str) -> None:
        if found.status == "ok":
            self.ns[found.choice] = p25(found.samples_ns)
            self.conditions = dict(found.conditions)
        else:
            self.failed[name] = f"{found.status}: {found.reason}"[:300]


def label(choice: Choice) -> str:
    """A choice in a few words."""
    knobs = (f"{key.removeprefix('ADV_').lower()}={value}" for key, value in choice.build.knobs)
    return " ".join([choice.build.variant, *knobs])


def kind(ground: Ground, choice: Choice) -> str:
    """library for a call of somebody else's, else own."""
    return "library" if ground.variant(choice).language in LIBRARY_GPU_LANGUAGES else "own"


def field(ground: Ground, left: Tuned, problem: Problem) -> Field:
    """Who races at one n. Raises Refused where nothing of ours has a time."""
    looks, choices = Looks(ground), ground.choices(problem)
    roles: dict[Choice, list[str]] = {}

    def enter(found: Iterable[Choice], role: str) -> None:
        for choice in found:
            roles.setdefault(choice, []).append(role)

    told = table_choice(left.table, problem)
    enter(looks.best(problem, [told] if told else []), "table")
    known = left.looks.get(problem, {})
    own = [one for one in choices if kind(ground, one) == "own"]
    enter(looks.best(problem, likely(known, own), 2), "own")
    for role, name in (("one warp", ONE_WARP), ("more warps", MORE_WARPS)):
        enter(looks.best(problem, likely(known, [one for one in own if one.build.variant == name])), role)
    enter(libraries(ground, looks, problem, choices), "library")
    if not any("own" in told for told in roles.values()):
        raise Refused("; ".join(f"{name}: {why}" for name, why in looks.failed.items()) or "no variant is valid here")
    entrants = [Entrant(label(one), one, kind(ground, one), tuple(of)) for one, of in roles.items()]
    return Field((*entrants, *floors(ground, looks, problem)), looks.failed, looks.conditions)


def likely(known: dict[Choice, float], choices: Sequence[Choice]) -> list[Choice]:
    """The choices that a tuning saw fastest; where it saw none, a few of each variant, evenly apart."""
    seen = sorted((one for one in choices if one in known), key=known.__getitem__)
    if seen:
        return seen[:2]
    found: list[Choice] = []
    for name in dict.fromkeys(one.build.variant for one in choices):
        own = [one for one in choices if one.build.variant == name]
        found += own[:: max(1, -(-len(own) // MOST_LOOKS))]
    return found


def libraries(ground: Ground, looks: Looks, problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """The library calls that look near the best of them, and cuDNN's best one whatever it looks."""
    found = looks.best(problem, [one for one in choices if kind(ground, one) == "library"], len(choices))
    near = [one for one in found if looks.ns[one] <= NEAR * looks.ns[found[0]]][:MOST_LIBRARIES]
    return list(dict.fromkeys([*near, *[one for one in found if is_cudnn(one)][:1]]))


def is_cudnn(choice: Choice) -> bool:
    """Whether a choice calls cuDNN."""
    return "cudnn" in choice.build.variant


def floors(ground: Ground, looks: Looks, problem: Problem) -> list[Entrant]:
    """The fastest realisations of the read floor of the same bytes; none where it cannot read this shape."""
    moved = problem._replace(kernel=ground.floor.spec.name)
    best = looks.best(moved, ground.choices(moved), MOST_FLOORS)
    return [Entrant(f"floor {label(one)}", one, "floor", ("floor",)) for one in best]


def measure(ground: Ground, left: Tuned, shape: str, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row: looks, then rounds. Raises Refused.

    Returns:
        The figures, and the conditions that a look found.
    """
    problem = problem_of(shape, n)
    moved = problem._replace(kernel=ground.floor.spec.name)
    who = field(ground, left, problem)
    turns = {}
    for one in who.entrants:
        pool, what = (ground.floor, moved) if one.kind == "floor" else (ground.pool, problem)
        turns[one.name] = sampler(pool, what, one.choice, ground.deadline)  # type: ignore[arg-type]  # as a WorkerPool
    samples = take_turns(turns, ROUNDS, seed=n)
    data = {
        "entrants": [told(ground, problem, one) for one in who.entrants],
        "samples": samples,
        "rounds": ROUNDS,
        "left_out": who.left_out,
        "cache_bytes": operand_bytes(ground.floor.spec, moved),
        "sets": sets(ground.spec, problem, ground.machine.gpus[0]),
        "evicted": is_evicted(ground.spec, problem, ground.machine.gpus[0]),
    }
    return data, who.conditions


def told(ground: Ground, problem: Problem, one: Entrant) -> dict[str, Any]:
    """An entrant as plain data, its thread mapping and warps a block included."""
    block = None if one.kind == "floor" else warps(ground.known, problem, one.choice)
    variant = ground.variant(one.choice)
    about = {"mapping": variant.mapping, "arithmetic": variant.arithmetic, "warps": block}
    return {**one._asdict(), "choice": to_json(one.choice), **about}
