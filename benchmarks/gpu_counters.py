"""The part `counters`: what the batched kernel and the two that read the cache once a query head move, and live times.

Counters come from ncu, which looks into a small program of its own; times from rounds of their own, where no profiler
is at work. The two stand side by side and neither is computed from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_ground import Ground, Tuned, problem_of
from gpu_race import Looks, label, likely
from kernel_race import Refused, sampler, take_turns

from advisor.codec import to_json
from advisor.kernels.gpu.counters import LIMIT_S, count_all
from advisor.kernels.gpu.counts import Counters, NoCounters, predicted
from advisor.records import Choice, Problem

VARIANTS = ("batched", "batched_mma", "split_w1", "split_w4")
"""The first two serve all query heads of a group from one read of the cache, the others read it for each of them."""

SHAPE = "40:8"
SIZES = (65536, 16384)
ROUNDS = 24


def measure(ground: Ground, left: Tuned, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One row: the best choice of each variant, timed in turns, then counted. Raises Refused where none has a time.

    Returns:
        The figures, and the conditions that a look found.
    """
    problem = problem_of(SHAPE, n)
    looks = Looks(ground)
    chosen = [one for name in VARIANTS for one in best(ground, left, looks, problem, name)]
    if not chosen:
        raise Refused("; ".join(f"{name}: {why}" for name, why in looks.failed.items()))
    turns = {label(one): sampler(ground.pool, problem, one, ground.deadline) for one in chosen}  # type: ignore[arg-type]
    samples = take_turns(turns, ROUNDS, seed=n)
    counted = counters(ground, [(problem, one) for one in chosen])
    listed = [told(ground, problem, one, found) for one, found in zip(chosen, counted, strict=True)]
    return {"choices": listed, "samples": samples, "rounds": ROUNDS, "left_out": looks.failed}, looks.conditions


def counters(ground: Ground, wanted: Sequence[tuple[Problem, Choice]]) -> Sequence[Counters | NoCounters]:
    """Counters of some choices, one program's time for it at most, and no more than is left."""
    limit_s = min(LIMIT_S, ground.deadline.left_s())
    return count_all(ground.machine.gpus[0], ground.spec, ground.known, wanted, limit_s)


def best(ground: Ground, left: Tuned, looks: Looks, problem: Problem, name: str) -> list[Choice]:
    """The fastest choice of a variant as far as a tuning or a look knows; none where it cannot run."""
    own = [one for one in ground.choices(problem) if one.build.variant == name]
    return looks.best(problem, likely(left.looks.get(problem, {}), own))


def told(ground: Ground, problem: Problem, one: Choice, found: Counters | NoCounters) -> dict[str, Any]:
    """A choice with its counters, or why there are none, as plain data."""
    variant = ground.variant(one)
    about = {"name": label(one), "choice": to_json(one), "mapping": variant.mapping}
    about["predicted"] = predicted(ground.spec, variant, problem, one)._asdict()
    if isinstance(found, NoCounters):
        return {**about, "refused": found._asdict()}
    return {**about, "counters": found.call._asdict(), "caches": found.caches, "tool": found.tool}
