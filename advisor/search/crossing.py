"""Crossings: where neighbouring n have different winners, both are measured at both, so that a border can be placed;
then at the border itself, which moves to where that says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from advisor.records import Choice, Problem, Verdict
from advisor.search.borders import BOUND, bracket, cell, crossing, fewest, log_ratio
from advisor.search.known import same_program
from advisor.search.overturn import overturned
from advisor.search.plan import kept_after
from advisor.search.race import Heat
from advisor.search.run import Limits, Run

ROUNDS = 14
"""Rounds of a crossing heat: it places a border, which moves little with a few percent."""

PASSES = ("borders", "borders, once more")
"""So often a border is measured and moved: after two, interpolation has two figures close to it."""

NEAR = 1.1
"""Two n within this ratio lie close enough: times of both choices at a border between them differ by less than a race
of so few rounds can tell."""


def crossings(verdicts: Sequence[Verdict]) -> tuple[Heat, ...]:
    """The heats that the borders between final verdicts need: at each of two neighbours, both winners and the DEFAULT.

    A pair that a final already raced side by side to its end is not raced again.
    """
    finals = sorted((v for v in verdicts if v.purpose == "final"), key=lambda v: v.problem.n)
    wanted: dict[Problem, list[Choice]] = {}
    for low, high in itertools.pairwise(finals):
        if low.winner == high.winner:
            continue
        for verdict, other in ((low, high.winner), (high, low.winner)):
            if not _raced(verdict, other):
                wanted.setdefault(verdict.problem, [verdict.winner, verdict.default]).append(other)
    of = {verdict.problem: verdict for verdict in finals}
    return tuple(
        Heat(problem, tuple(dict.fromkeys(choices)), of[problem].default, "crossing")
        for problem, choices in wanted.items()
    )


def _raced(verdict: Verdict, choice: Choice) -> bool:
    """Whether a verdict has as many samples of a choice as of its winner."""
    samples = {s.choice: s.summary.samples for s in verdict.standings if s.summary is not None}
    return samples.get(choice, 0) >= samples.get(verdict.winner, 1)


def borders(verdicts: Sequence[Verdict]) -> tuple[Heat, ...]:
    """The heats at the borders that interpolation expects: both choices and the DEFAULT, at an n that is not tuned.

    Only where a better border is worth measuring: the times of both cross, differ at either end by what counts, and
    nothing close by was measured yet.

    Args:
        verdicts: finals, crossings, and what was measured at borders before.
    """
    finals = sorted((v for v in verdicts if v.purpose == "final"), key=lambda v: v.problem.n)
    rivals = list(dict.fromkeys(same_program(v.winner) for v in finals))
    cells = [cell(verdicts, v.problem.n, same_program(v.winner), rivals, same_program) for v in finals]
    taken = fewest(cells)
    found = []
    for (low, left), (high, right) in itertools.pairwise(zip(finals, taken, strict=True)):
        n = None if left == right else _expected(verdicts, (low.problem.n, high.problem.n), left, right)
        if n is not None:
            choices = tuple(dict.fromkeys((left, right, low.default)))
            found.append(Heat(low.problem._replace(n=n), choices, low.default, "border"))
    return tuple(found)


def _expected(verdicts: Sequence[Verdict], ends: tuple[int, int], left: Choice, right: Choice) -> int | None:
    """The n at which both are expected to take equally long, then the middle of what is left; None where it need not or
    cannot be told better.

    Interpolating again and again would come close from one side only.
    """
    between = {v.problem.n for v in verdicts if v.purpose == "border" and ends[0] < v.problem.n < ends[1]}
    known = [(n, log_ratio(verdicts, n, left, right, same_program)) for n in sorted({*ends, *between})]
    (a, at_a), (b, at_b) = bracket([one for one in known if one[0] in ends or one[1] is not None])
    if at_a is None or at_b is None or not at_a < 0 < at_b or b < NEAR * a:
        return None
    if max(-at_a, at_b) < math.log1p(BOUND) or (between and min(-at_a, at_b) < math.log1p(BOUND)):
        return None
    n = math.isqrt(a * b) if between else crossing(a, b, at_a, at_b)
    return n if a < n < b else None


def cross(run: Run) -> None:
    """Run the heats that time allows, at neighbours and then at borders; what is left out is noted.

    A final whose winner was clearly beaten meanwhile has another one afterwards.
    """
    heats = crossings(run.verdicts)
    if heats:
        run.progress.stage("crossings", len(heats))
    until = run.deadline_before(kept_after(run.request))
    took = 0.0
    for heat in heats:
        if run.out_of_time(until):
            run.notes.append(f"no time to race both neighbours' winners at n = {heat.problem.n}: its border is rough")
            continue
        took = max(took, _race(run, heat, until))
    run.verdicts = list(overturned(run.verdicts))
    for name in PASSES:
        took = _refine(run, name, until, took)


def _refine(run: Run, name: str, until: float, took: float) -> float:
    """One heat at each border; none begins that would end too late by what the longest one took, which is returned."""
    heats = borders(run.verdicts)
    if heats:
        run.progress.stage(name, len(heats))
    for heat in heats:
        if run.out_of_time(until - took):
            break
        took = max(took, _race(run, heat, until))
    return took


def _race(run: Run, heat: Heat, until: float) -> float:
    """Race a heat, keep its verdict; returns the seconds it took."""
    begun = run.clock()
    run.prepare(heat.problem, heat.choices)
    verdict, _ = run.race(heat, Limits(until, ROUNDS))
    run.verdicts += [verdict] if verdict else []
    run.progress.advance(f"n={heat.problem.n}")
    return run.clock() - begun
