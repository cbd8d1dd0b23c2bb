"""Seeds: the choices that a search looks at first, because something speaks for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from advisor.kernels.spec import KernelSpec
from advisor.records import Choice, Problem
from advisor.search.space import is_default_process

BYTES_A_THREAD = 64 * 1024
"""Traffic worth one more thread: at some 10 GB/s a core, 64 KiB take 6.5 us, about what starting and joining costs.

A rule of thumb that only orders the first looks. It says what is known: small n wants few threads, large n all cores.
"""

BYTES_A_SECOND, FLOPS_A_SECOND = 1e10, 5e10
"""What an untuned call may reach: 10 GB/s of traffic or 50 Gflop/s, whichever takes longer. To share time by only."""

FLOPS_A_THREAD = 1 << 18
"""Arithmetic worth one more thread: at some 50 Gflop/s a core it takes 5 us, as long as starting and joining."""

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

MOST = 10
"""Seeds at most; more would crowd out the start."""


def moved_bytes(spec: KernelSpec, problem: Problem) -> int:
    """Predicted traffic of the DNF in bytes."""
    elements = spec.elements(problem)
    return (elements.read + elements.written) * ITEM_BYTES[problem.dtype]


def call_s(spec: KernelSpec, problem: Problem) -> float:
    """Seconds that a call may take, a guess to share time by."""
    return max(moved_bytes(spec, problem) / BYTES_A_SECOND, spec.flops(problem) / FLOPS_A_SECOND)


def predicted_threads(spec: KernelSpec, problem: Problem, counts: Sequence[int]) -> int:
    """The thread count, of those listed, that the traffic or the arithmetic is worth."""
    worth = max(1, moved_bytes(spec, problem) // BYTES_A_THREAD, spec.flops(problem) // FLOPS_A_THREAD)
    return min(counts, key=lambda count: (abs(count - min(worth, max(counts))), count))


def _with_threads(choices: Sequence[Choice], like: Choice, threads: int) -> Choice | None:
    """The first listed choice with this build and team size, in the default process part if there is one."""
    same = [c for c in choices if c.build == like.build and c.team and c.team.threads == threads]
    return next((c for c in same if is_default_process(c.process)), same[0] if same else None)


def seeds(
    spec: KernelSpec, problem: Problem, choices: Sequence[Choice], default: Choice, neighbours: Iterable[Choice]
) -> tuple[Choice, ...]:
    """What to look at first: the DEFAULT, winners at neighbouring n, and what the traffic is worth.

    Args:
        spec: predicts the traffic.
        problem: what is tuned.
        choices: the space; seeds outside it are left out.
        default: the DEFAULT choice.
        neighbours: winners and runners-up at n already done, nearest first.

    Returns:
        Distinct listed choices, the DEFAULT first. On a device every variant has one, the first listed, which has its
        defaults: a library's backend must not go unseen, however few looks there are.
    """
    counts = sorted({choice.team.threads for choice in choices if choice.team})
    threads = [predicted_threads(spec, problem, counts), counts[-1], 1] if counts else []
    modelled = [_with_threads(choices, default, count) for count in threads]
    listed = set(choices)
    wanted = [default, *list(neighbours)[: MOST - 4], *modelled]
    found = tuple(dict.fromkeys(choice for choice in wanted if choice is not None and choice in listed))[:MOST]
    return tuple(dict.fromkeys((*found, *_one_a_variant(choices)))) if default.team is None else found


def _one_a_variant(choices: Sequence[Choice]) -> list[Choice]:
    """The first listed choice of each variant, the tools in turn: where time is short, each has had a look."""
    first: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        first.setdefault((choice.build.variant, choice.build.compiler), choice)
    tools = dict.fromkeys(choice.build.compiler for choice in first.values())
    turns = zip_longest(*([c for c in first.values() if c.build.compiler == tool] for tool in tools))
    return [choice for turn in turns for choice in turn if choice is not None]
