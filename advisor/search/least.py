"""The least of an n on a device: what is looked at before its race, however small its share of the time is.

A table shall name nothing that is slower than the best library call. So that call has its look at every n that gets an
answer, beside the best own choice: an own kernel that is 1.2 times ahead at n = 64 was seen 1.7 times behind at 2048.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from typing import NamedTuple

from advisor.device import is_device
from advisor.kernels.header import LIBRARY_GPU_LANGUAGES
from advisor.records import Choice, Problem
from advisor.search import behind, bounds
from advisor.search.plan import LOOK_FIXED_S
from advisor.search.race import LEAST_ROUNDS
from advisor.search.run import Run, value_of
from advisor.search.seeds import ITEM_BYTES

AGAIN = 16
"""A library far behind has another look where n has grown so many times since its last: its launch no longer counts."""

OPERANDS_A_SECOND = 2e8
"""Bytes of operands that are made, copied and checked a second at the first look of an n: an H200's host did 540 MB in
2.7 s. To share time by only."""

NEXT_LOOK_S, SAMPLE_S, CALLS = 0.1, 0.02, 20
"""What a further look and a sample of a race take beside their calls; calls of a look of one sample, its checks
included, as seen on an H200. To share time by only."""

RACED = 2
"""Choices that a race takes to its end in the mean: what is clearly behind is dropped after three rounds."""

FIRST_SHARE = 1 / 2
"""Of a tool's first look, what its next new program is expected to take while none was seen."""

PACES = (0.2, 3.0)
"""The first looks seen may say that these guesses are so far off, and no further: one may have waited for others."""


class Seen(NamedTuple):
    """The best of a variant's looks at the largest n where it had any that ran, and how it compares there."""

    problem: Problem
    choice: Choice
    ns: float
    ratio: float


def libraries(run: Run) -> tuple[str, ...]:
    """The variants that call a library's kernel."""
    return tuple(v.name for v in run.request.variants if v.language in LIBRARY_GPU_LANGUAGES)


def least(run: Run, problem: Problem, choices: Sequence[Choice], default: Choice) -> tuple[Choice, ...]:
    """The choices that must have a look before a race at a problem says anything.

    At the first n the DEFAULT and one of each library; then the winner and the best own one of the n before, of each
    library that counts its best look, and the DEFAULT.

    Args:
        run: its looks at smaller n all count.
        problem, choices, default: what is searched.
    """
    calls = [name for name in libraries(run) if any(c.build.variant == name for c in choices)]
    seen, tried, listed = _seen(run, problem), _tried(run, problem), frozenset(choices)
    first = {choice.build.variant: choice for choice in reversed(choices)}
    if not seen:
        wanted = [default, *(first[name] for name in calls if name not in tried)]
    else:
        back = [name for name in calls if name in seen and _counts(run, problem, seen[name])]
        back.sort(key=lambda name: seen[name].ratio)
        new = [name for name in calls if name not in tried]
        known = [seen[name].choice if seen[name].choice in listed else first[name] for name in back]
        wanted = [*_best(run, problem, seen, listed), *known, *(first[name] for name in new), default]
    return tuple(choice for choice in dict.fromkeys(wanted) if choice in listed)


def _smaller(run: Run, problem: Problem) -> list[Problem]:
    """The n that were looked at and are smaller, ascending."""
    return sorted((p for p in run.looks if p.n < problem.n), key=lambda p: p.n)


def _tried(run: Run, problem: Problem) -> set[str]:
    """Variants with a look at a smaller n, whatever came of it."""
    return {choice.build.variant for at in _smaller(run, problem) for choice in run.looks[at]}


def _seen(run: Run, problem: Problem) -> dict[str, Seen]:
    """What smaller n say of each variant that ran at one."""
    found: dict[str, Seen] = {}
    for at in _smaller(run, problem):
        timed = {choice: ns for choice, look in run.looks[at].items() if (ns := value_of(look)) is not None}
        for choice in sorted(timed, key=lambda one: -timed[one]):
            found[choice.build.variant] = Seen(at, choice, timed[choice], timed[choice] / min(timed.values()))
    return found


def _best(run: Run, problem: Problem, seen: dict[str, Seen], listed: Collection[Choice]) -> list[Choice]:
    """The winner of the last race at a smaller n, then the best-looking own choice of the largest n seen."""
    raced = [v for v in run.verdicts if v.purpose == "final" and v.problem.n < problem.n]
    winner = [max(raced, key=lambda verdict: verdict.problem.n).winner] if raced else []
    last = max(one.problem.n for one in seen.values())
    order = sorted((one for one in seen.values() if one.problem.n == last), key=lambda one: one.ns)
    own = [one.choice for one in order if one.choice in listed and one.choice.build.variant not in libraries(run)]
    return [*winner, *(own[:1] if not winner or winner[0] not in own else ())]


def _counts(run: Run, problem: Problem, one: Seen) -> bool:
    """Whether a library that ran at a smaller n must have a look: it was not hopeless, or n has grown a lot since.

    Then it may have been slow for its launch alone, however many times the best that was; but no look is begun for that
    which may take a tenth of the time left.
    """
    if one.ratio <= behind.HOPELESS:
        return True
    call_s = behind.expected(run, problem)[one.choice.build.variant].most * 1e-9
    long = CALLS * call_s > behind.LONG_SHARE * (run.deadline - run.clock())
    return problem.n >= AGAIN * one.problem.n and not long


def lacking(run: Run, problem: Problem, wanted: Sequence[Choice]) -> tuple[Choice, ...]:
    """Those of the least looks for which there was no time, and without which there is no answer.

    A library that was well behind at a smaller n is none of them. The first answer of a run may lack some, as long as a
    library's call is among what was looked at: without one there is no table at all.
    """
    looks, calls, seen = run.looks.get(problem, {}), libraries(run), _seen(run, problem)
    slow = {name for name in calls if name in seen and seen[name].ratio > behind.FAR}
    left = tuple(choice for choice in wanted if choice not in looks and choice.build.variant not in slow)
    compared = any(look.choice.build.variant in calls and look.status == "ok" for look in looks.values())
    return () if compared and not run.verdicts else left


# --- what it takes ---


def looks_s(run: Run, problem: Problem, count: int) -> float:
    """Expected seconds of so many first looks at a problem, the first of which makes the operands."""
    if not count:
        return 0.0
    return _pace(run, problem) * _first_s(run, problem) + (count - 1) * (NEXT_LOOK_S + CALLS * _call_s(run, problem))


def race_s(run: Run, problem: Problem) -> float:
    """Expected seconds of the shortest race at a problem."""
    return RACED * LEAST_ROUNDS * (SAMPLE_S + _call_s(run, problem))


def _first_s(run: Run, problem: Problem) -> float:
    elements = sum(math.prod(shape) for shape in run.request.spec.shapes(problem).values())
    return LOOK_FIXED_S + elements * ITEM_BYTES[problem.dtype] / OPERANDS_A_SECOND


def _pace(run: Run, problem: Problem) -> float:
    """How many times the guess the first looks took, without those of the first n: there tools load."""
    done = [[look.seconds - look.compile_s for look in run.looks[at].values()] for at in _smaller(run, problem)[1:]]
    guesses = [_first_s(run, at) for at in _smaller(run, problem)[1:]]
    ratios = [looks[0] / guess for looks, guess in zip(done, guesses, strict=True) if looks]
    return min(max(statistics.median(ratios), PACES[0]), PACES[1]) if ratios else 1.0


def _call_s(run: Run, problem: Problem) -> float:
    """What a call of the best may take: between the slower and the faster growth of traffic and arithmetic."""
    known = [at for at in run.looks if at in run.best_ns and at.n <= problem.n]
    if not known:
        return 0.0
    at, spec = max(known, key=lambda p: p.n), run.request.spec
    grown = bounds.growth(spec, at, problem) * bounds.most_growth(spec, at, problem)
    return run.best_ns[at] * 1e-9 * math.sqrt(grown)


def no_time(run: Run, choice: Choice, until: float, spare_until: float) -> bool:
    """Whether a look may not begin: the time is over, or will be before a device's tool has compiled the choice.

    Args:
        until: when the search ends.
        spare_until: until when a program that serves all n may be compiled, if that is later.
    """
    if run.out_of_time(until) or not is_device(run.request.machine.limits_id):
        return run.out_of_time(until)
    return run.out_of_time(max(until, spare_until) - _loads_s(run, choice))


def _loads_s(run: Run, choice: Choice) -> float:
    """What a tool may take to compile a choice at its first look: as long as its last new program took at most.

    Nothing where the program was called before; a part of the tool's first look, which loaded it, where no other is
    known: 4.1 s and then 2.5 s were seen of one, where a size's whole share was half a second.
    """
    made: list[float] = []
    programs: set[object] = set()
    for look in (look for looks in run.looks.values() for look in looks.values()):
        if look.choice.build.compiler == choice.build.compiler:
            if look.choice.build not in programs:
                made.append(look.seconds - look.kernel_s)
            programs.add(look.choice.build)
    if choice.build in programs or not made:
        return 0.0
    return made[-1] if len(made) > 1 else FIRST_SHARE * made[0]
