"""The part `chain`: every own variant of forward, backward and fused in turn, float64, the paper's shape.

Calls follow one another on one set of operands (warm), as in a program that trains. Every variant takes its turn in
each round, in another order each time; what takes long is in the first rounds alone, and its row says how many.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gpu_cells import ATTENTION, problem_of
from gpu_ground import Ground, Tuned
from gpu_race import Looks, is_slow, kind, label, likely, spread, take_turns, turn_of
from kernel_race import Refused

from advisor.codec import to_json
from advisor.kernels.executor import Ask
from advisor.records import Choice, Problem

KERNELS = ATTENTION
LABELS = {kernel: f"{kernel}-f64-P" for kernel in KERNELS}
SIZES = (2048, 64, 512, 8192, 4096, 1024, 256, 128)
"""In the order in which they are measured: every fourth n first, should time end."""

LOOK = Ask(1, 30.0)
ROUNDS, LEAST_ROUNDS = 16, 5
TURN_S = 0.4
"""A variant has as many rounds as fit into so long, at least 5 and at most 16."""

KNOBS, LONG_NS = 6, 2e6
"""Knob sets of a variant that are looked at besides a tuning's, where a call with its defaults takes no longer."""

SAMPLE_S = 0.001

SLOW_N = 2048
"""Over this n, of the mappings that take long (gpu_race.SLOW) only those of KEPT are timed."""

KEPT = ("fused_two_atomics_packed", "fused_gv_columns_packed", "fused_no_atomic_packed", "pair_packed")
"""The published steps are those of a thread a row."""


def measure(ground: Ground, left: Mapping[str, Tuned], n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row: the best knobs of each variant, then rounds. Raises Refused where nothing has a time.

    Args:
        ground: where.
        left: kernel -> what a tuning left: the knobs that it saw fastest are looked at too.
        n: the size.

    Returns:
        The figures, and the conditions that a look found.
    """
    listed, left_out, conditions, turns = [], {}, {}, {}
    for kernel in KERNELS:
        problem, looks = problem_of(LABELS[kernel], n, "warm"), Looks(ground, LOOK)
        seen = left[kernel].looks.get(problem_of(LABELS[kernel], n), {})
        for name, choices in own(ground, problem).items():
            found = best(looks, problem, choices, seen)
            if found:
                what = f"{kernel} {label(found[0])}"
                listed.append(told(ground, problem, what, found[0], looks.ns[found[0]], len(choices)))
                turns[what] = turn_of(ground, problem, found[0], 1, SAMPLE_S)
            else:
                left_out[f"{kernel} {name}"] = "; ".join(w for k, w in looks.failed.items() if k.split(" ")[0] == name)
        conditions = looks.conditions or conditions
    if not turns:
        raise Refused("; ".join(left_out.values()) or "no own variant is valid here")
    begun = time.monotonic()
    samples = take_turns(turns, {one["name"]: rounds(one["look_ns"]) for one in listed}, seed=n)
    return {
        "variants": listed,
        "samples": samples,
        "left_out": left_out,
        "rounds_s": time.monotonic() - begun,
        "regime": "warm",
    }, conditions


def own(ground: Ground, problem: Problem) -> dict[str, list[Choice]]:
    """Variant -> its choices, those of ours that are timed at this n."""
    found: dict[str, list[Choice]] = {}
    for one in ground.choices(problem):
        long = problem.n > SLOW_N and is_slow(problem, one) and one.build.variant not in KEPT
        if kind(ground, problem, one) == "own" and not long:
            found.setdefault(one.build.variant, []).append(one)
    return found


def best(looks: Looks, problem: Problem, choices: list[Choice], seen: Mapping[Choice, float]) -> list[Choice]:
    """The fastest of a few knob sets and of those that a tuning saw fastest; of a variant whose calls are long the
    latter and its defaults, which stand first."""
    first, known = looks.best(problem, choices[:1]), [one for one in choices if one in seen]
    tuned = likely(seen, known) if known else []
    if first and looks.ns[first[0]] > LONG_NS:
        return looks.best(problem, [*choices[:1], *tuned])
    return looks.best(problem, [*spread(choices, KNOBS), *tuned])


def rounds(look_ns: float) -> int:
    """How many rounds a variant has."""
    return max(LEAST_ROUNDS, min(ROUNDS, int(TURN_S / max(look_ns * 1e-9, SAMPLE_S))))


def told(ground: Ground, problem: Problem, what: str, choice: Choice, look_ns: float, sets: int) -> dict[str, Any]:
    """A variant as plain data: name of its samples, choice, its first look, of how many knob sets, its mapping."""
    variant = ground.variant(problem, choice)
    about = {"default": choice.build.knobs == variant.defaults, "knob_sets": sets, "mapping": variant.mapping}
    names = {"name": what, "kernel": problem.kernel, "variant": variant.name}
    return {**names, "choice": to_json(choice), "look_ns": look_ns, **about}
