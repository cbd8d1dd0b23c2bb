"""The part `counters`: what calls move, and live times: of decode with and without batched heads, of the chain.

Counters come from ncu, which looks into a small program of its own; times from rounds of their own, where no profiler
is at work. The two stand side by side and neither is computed from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpu_cells import problem_of
from gpu_ground import Ground, Tuned
from gpu_race import Looks, kind, label, likely, take_turns, turn_of
from kernel_race import Refused

from advisor.codec import to_json
from advisor.kernels.gpu.counters import LIMIT_S, count_all
from advisor.kernels.gpu.counts import Counters, NoCounters, predicted
from advisor.records import Choice, Problem

ROUNDS, CHAIN_ROUNDS = 24, 8

BATCHED = ("batched", "batched_mma", "split_w1", "split_w4")
"""Of decode: the first two serve all query heads of a group from one read of the cache, the others read it for each."""


class Wanted(NamedTuple):
    """A row: cell, n, the names of its variants (none: all own ones), rounds of live times."""

    label: str
    n: int
    variants: tuple[str, ...] = ()
    rounds: int = CHAIN_ROUNDS


LARGE = (
    ("fused_two_atomics_lane", "fused_gv_columns_lane", "fused_no_atomic_lane", "pair_lane"),
    ("gk_atomic_lane", "no_atomic_lane"),
    ("lane_global", "lane_shared"),
)
CHAIN_CELLS = tuple(f"{kernel}-f64-P" for kernel in ("fused", "backward", "forward"))
WANTED = (
    *(Wanted("40:8", n, BATCHED, ROUNDS) for n in (65536, 16384)),
    *(Wanted(label, 2048) for label in CHAIN_CELLS),
    *(Wanted(label, 4096, names) for label, names in zip(CHAIN_CELLS, LARGE, strict=True)),
)
"""Of the chain every own variant at n = 2048, where the published counts were taken; at 4096, where the L2 no longer
hides what is written, those of LARGE."""


def measure(ground: Ground, left: Tuned, row: Wanted) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row: the best choice of each variant, timed in turns, then counted. Raises Refused where none has a time.

    Returns:
        The figures, and the conditions that a look found.
    """
    problem = problem_of(row.label, row.n)
    looks, choices = Looks(ground), ground.choices(problem)
    names = row.variants or own_names(ground, problem, choices)
    chosen = [
        one for name in names for one in best(looks, left, problem, [c for c in choices if c.build.variant == name])
    ]
    if not chosen:
        raise Refused("; ".join(f"{name}: {why}" for name, why in looks.failed.items()) or "no variant is valid here")
    turns = {label(one): turn_of(ground, problem, one, 1) for one in chosen}
    samples = take_turns(turns, dict.fromkeys(turns, row.rounds), seed=row.n)
    counted = counters(ground, [(problem, one) for one in chosen])
    listed = [told(ground, problem, one, found) for one, found in zip(chosen, counted, strict=True)]
    return {"choices": listed, "samples": samples, "rounds": row.rounds, "left_out": looks.failed}, looks.conditions


def own_names(ground: Ground, problem: Problem, choices: Sequence[Choice]) -> list[str]:
    """The variants of ours."""
    return list(dict.fromkeys(one.build.variant for one in choices if kind(ground, problem, one) == "own"))


def best(looks: Looks, left: Tuned, problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """The fastest choice of a variant as far as a tuning knows, else the first, its defaults; none where it cannot
    run."""
    seen = left.looks.get(problem, {})
    known = [one for one in choices if one in seen]
    return looks.best(problem, likely(seen, known) if known else choices[:1])


def counters(ground: Ground, wanted: Sequence[tuple[Problem, Choice]]) -> Sequence[Counters | NoCounters]:
    """Counters of some choices of one kernel, one program's time for it at most, and no more than is left."""
    limit_s, arena = min(LIMIT_S, ground.deadline.left_s()), ground.at(wanted[0][0])
    return count_all(ground.machine.gpus[0], arena.spec, arena.known, wanted, limit_s)


def told(ground: Ground, problem: Problem, one: Choice, found: Counters | NoCounters) -> dict[str, Any]:
    """A choice with its counters, or why there are none, as plain data."""
    variant = ground.variant(problem, one)
    about = {"name": label(one), "choice": to_json(one), "mapping": variant.mapping}
    about["predicted"] = predicted(ground.at(problem).spec, variant, problem, one)._asdict()
    if isinstance(found, NoCounters):
        return {**about, "refused": found._asdict()}
    return {**about, "counters": found.call._asdict(), "caches": found.caches, "tool": found.tool}
