"""The part `race`: a table's choice, the best own variants, the libraries' backends and, for decode, the read floor.

Everything here measures; what is slower than what is said by gpu_judge.py. Every entrant takes its turn in every round,
in another order each time, all in one process and in the cold regime: operands rotate through more than twice the L2.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpu_cells import problem_of
from gpu_ground import FLOOR, Ground, Tuned, table_choice, warps
from kernel_race import Refused

from advisor.codec import to_json
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.memory import is_evicted, sets
from advisor.kernels.header import LIBRARY_GPU_LANGUAGES
from advisor.kernels.memory import operand_bytes
from advisor.records import Choice, Measurement, Problem
from advisor.search.protocol import RACE_SAMPLE_S
from advisor.search.samples import p25

SAMPLES = 24
"""Samples of an entrant: a difference of 1.5 % needs 20 to 40. Source: docs/search.md."""

TURN, LARGE_TURN, LARGE_BYTES = 2, 4, 1 << 26
"""Samples that an entrant takes in its turn, and where operands are so large: what it computed is judged after each
turn, which takes longer than the samples."""

LOOK = Ask(3, 30.0)
HOPELESS = 3.0
"""A look at what takes so many times as long as the best so far ends after a call."""

NEAR, MOST_LIBRARIES, MOST_FLOORS = 1.25, 3, 2
"""Libraries race that look at most so many times as slow as the best of them, at most three; the two fastest floors."""

ONE_WARP, MORE_WARPS = "split_w1", "split_w4"
"""Of decode, the pair that differs in the warps of a block alone."""

PAIR = "pair"
"""How names of fused variants begin that are the naive way: forward, then backward."""

ALWAYS = ("cudnn", "efficient", "math")
"""Backends whose best call races however it looks, where a bar names them."""

MOST_LOOKS = 6
"""Choices of a variant that are looked at where a tuning left no look at it."""

SLOW, SLOW_N = ("packed", "one_lane"), 256
"""Mappings that take ten times as long as others and up to half a second a call: from this n on they are not looked at
where a tuning left no look at them. The part `chain` times them."""

Turn = Callable[[], list[float]]
"""Some samples of an entrant, in ns. Raises Refused when it has no time."""


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

    def __init__(self, ground: Ground, ask: Ask = LOOK) -> None:
        self.ground, self.ask = ground, ask
        self.ns: dict[Choice, float] = {}
        self.failed: dict[str, str] = {}
        self.conditions: dict[str, Any] = {}

    def best(self, problem: Problem, choices: Iterable[Choice], keep: int = 1) -> list[Choice]:
        """Look at some choices; the fastest of them, fastest first. Fewer where fewer have a time."""
        listed, ask = list(dict.fromkeys(choices)), self.ask
        self.ground.at(problem).pool.prepare(problem, [one for one in listed if one not in self.ns])
        for choice in listed:
            if choice not in self.ns:
                ask = ask._replace(give_up_ns=HOPELESS * min(self.ns.values())) if self.ns else ask
                self._take(self.ground.measure(problem, choice, ask), label(choice))
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


def kind(ground: Ground, problem: Problem, choice: Choice) -> str:
    """library for a call of somebody else's, else own."""
    return "library" if ground.variant(problem, choice).language in LIBRARY_GPU_LANGUAGES else "own"


# --- who races ---


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
    own = [
        one for one in choices if kind(ground, problem, one) == "own" and (one in known or not is_slow(problem, one))
    ]
    enter(looks.best(problem, likely(known, own), 2), "own")
    for role, some in special(problem, own).items():
        rivals = spread(some, 1) if role == "naive" else []  # a tuning looks at few of these
        enter(looks.best(problem, [*likely(known, some), *rivals]), role)
    enter(libraries(ground, looks, problem, choices), "library")
    if not any("own" in told for told in roles.values()):
        raise Refused("; ".join(f"{name}: {why}" for name, why in looks.failed.items()) or "no variant is valid here")
    entrants = [Entrant(label(one), one, kind(ground, problem, one), tuple(of)) for one, of in roles.items()]
    return Field((*entrants, *floors(ground, looks, problem)), looks.failed, looks.conditions)


def special(problem: Problem, own: Sequence[Choice]) -> dict[str, list[Choice]]:
    """Role -> who of ours may play it, beside the best: what a kernel has sentences about."""
    if problem.kernel == "decode":
        named = {"one warp": ONE_WARP, "more warps": MORE_WARPS}
        return {role: [one for one in own if one.build.variant == name] for role, name in named.items()}
    if problem.kernel == "fused":
        naive = [one for one in own if one.build.variant.startswith(PAIR)]
        return {"naive": naive, "fused": [one for one in own if one not in naive]}
    return {}


def is_slow(problem: Problem, choice: Choice) -> bool:
    """Whether a choice is of a mapping that only the part `chain` has time for."""
    return problem.n > SLOW_N and any(name in choice.build.variant for name in SLOW)


def likely(known: Mapping[Choice, float], choices: Sequence[Choice]) -> list[Choice]:
    """The choices that a tuning saw fastest; where it saw none, a few of each variant, evenly apart."""
    seen = sorted((one for one in choices if one in known), key=known.__getitem__)
    if seen:
        return seen[:2]
    return spread(choices, MOST_LOOKS)


def spread(choices: Sequence[Choice], most: int) -> list[Choice]:
    """At most so many choices of each variant, its defaults first, the others evenly apart."""
    found: list[Choice] = []
    for name in dict.fromkeys(one.build.variant for one in choices):
        own = [one for one in choices if one.build.variant == name]
        found += own[:: max(1, -(-len(own) // most))]
    return found


def libraries(ground: Ground, looks: Looks, problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """The library calls that look near the best of them, and the best of each backend that always races."""
    called = [one for one in choices if kind(ground, problem, one) == "library"]
    found = looks.best(problem, called, len(choices))
    near = [one for one in found if looks.ns[one] <= NEAR * looks.ns[found[0]]][:MOST_LIBRARIES]
    named = [one for name in ALWAYS for one in [one for one in found if name in one.build.variant][:1]]
    return list(dict.fromkeys([*near, *named]))


def floors(ground: Ground, looks: Looks, problem: Problem) -> list[Entrant]:
    """The fastest realisations of decode's read floor of the same bytes; none where it cannot read this shape."""
    if problem.kernel != "decode":
        return []
    moved = problem._replace(kernel=FLOOR)
    best = looks.best(moved, ground.choices(moved), MOST_FLOORS)
    return [Entrant(f"floor {label(one)}", one, "floor", ("floor",)) for one in best]


# --- rounds ---


def turn_of(ground: Ground, problem: Problem, choice: Choice, samples: int, sample_s: float = RACE_SAMPLE_S) -> Turn:
    """Some samples of a choice at each call: calls that fill a time, or one that is longer."""

    def turn() -> list[float]:
        found = ground.measure(problem, choice, Ask(samples, ground.deadline.limit_s(), sample_s))
        if found.status != "ok":
            raise Refused(f"{choice.build.variant}: {found.status}: {found.reason}")
        return list(found.samples_ns)

    return turn


def take_turns(turns: Mapping[str, Turn], rounds: Mapping[str, int], seed: int) -> dict[str, list[float]]:
    """Each takes its turn in every round until it had so many, in another order each time. Raises Refused when one
    fails."""
    shuffle = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in turns}
    for done in range(max(rounds.values(), default=0)):
        racing = [name for name in turns if rounds[name] > done]
        for name in shuffle.sample(racing, len(racing)):
            samples[name] += turns[name]()
    return samples


def samples_a_turn(ground: Ground, problem: Problem) -> int:
    """How many samples an entrant takes in its turn."""
    return LARGE_TURN if operand_bytes(ground.at(problem).spec, problem) >= LARGE_BYTES else TURN


def measure(ground: Ground, left: Tuned, shape: str, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row: looks, then rounds. Raises Refused.

    Returns:
        The figures, and the conditions that a look found.
    """
    problem, begun = problem_of(shape, n), time.monotonic()
    moved = problem._replace(kernel=FLOOR) if problem.kernel == "decode" else problem
    who = field(ground, left, problem)
    looked_s, each = time.monotonic() - begun, samples_a_turn(ground, problem)
    turns = {
        one.name: turn_of(ground, moved if one.kind == "floor" else problem, one.choice, each) for one in who.entrants
    }
    samples = take_turns(turns, dict.fromkeys(turns, SAMPLES // each), seed=n)
    spec = ground.at(problem).spec
    data = {
        "entrants": [told(ground, problem, one) for one in who.entrants],
        "samples": samples,
        "rounds": SAMPLES,
        "turns": SAMPLES // each,
        "left_out": who.left_out,
        "looked_s": looked_s,
        "cache_bytes": operand_bytes(ground.at(moved).spec, moved),
        "sets": sets(spec, problem, ground.machine.gpus[0]),
        "evicted": is_evicted(spec, problem, ground.machine.gpus[0]),
    }
    return data, who.conditions


def told(ground: Ground, problem: Problem, one: Entrant) -> dict[str, Any]:
    """An entrant as plain data, its thread mapping and warps a block included."""
    where = problem._replace(kernel=FLOOR) if one.kind == "floor" else problem
    variant = ground.variant(where, one.choice)
    block = None if one.kind == "floor" else warps(ground.at(problem).known, problem, one.choice)
    about = {"mapping": variant.mapping, "arithmetic": variant.arithmetic, "warps": block}
    return {**one._asdict(), "choice": to_json(one.choice), **about}
