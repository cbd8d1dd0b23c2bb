"""Crossings: where neighbouring n have different winners, both are measured at both, so that a border can be placed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from advisor.records import Choice, Problem, Verdict
from advisor.search.plan import STOLEN_SHARE
from advisor.search.race import Heat
from advisor.search.run import Limits, Run

ROUNDS = 14
"""Rounds of a crossing heat: it places a border, which moves little with a few percent, and crowns nobody."""


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


def cross(run: Run) -> None:
    """Run the crossing heats that time allows; what is left out is noted."""
    heats = crossings(run.verdicts)
    run.progress.stage("crossings", len(heats))
    until = run.deadline_before(STOLEN_SHARE)
    for heat in heats:
        if run.out_of_time(until):
            run.notes.append(f"no time to race both neighbours' winners at n = {heat.problem.n}: its border is rough")
            continue
        run.prepare(heat.problem, heat.choices)
        verdict, _ = run.race(heat, Limits(until, ROUNDS))
        run.verdicts += [verdict] if verdict else []
        run.progress.advance(f"n={heat.problem.n}")
