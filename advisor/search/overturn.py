"""A winner that a later race at the same n clearly beats is no winner: crossing races speak about more than borders."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Problem, Standing, Verdict
from advisor.search.borders import BOUND
from advisor.search.settled import is_settled


def overturned(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts, each final with the winner that a crossing race after it at the same n leaves.

    A crossing race overturns a final where it told the winner apart from a faster choice, over enough rounds, and by
    what is worth a change.

    Args:
        verdicts: in the order in which they were raced.
    """
    found = list(verdicts)
    last: dict[Problem, int] = {}
    for at, verdict in enumerate(found):
        if verdict.purpose == "final":
            last[verdict.problem] = at
        elif verdict.purpose == "crossing" and verdict.problem in last:
            final = last[verdict.problem]
            found[final] = _left(found[final], verdict)
    return tuple(found)


def _left(final: Verdict, crossing: Verdict) -> Verdict:
    """The final after a crossing race at the same n."""
    before = next((s for s in crossing.standings if s.choice == final.winner), None)
    if crossing.winner == final.winner or before is None or before.ratio is None or before.outcome != "slower":
        return final
    if not is_settled(crossing) or before.ratio < 1 + BOUND:
        return final
    raced = {standing.choice for standing in crossing.standings}
    others = (_behind(standing, before.ratio) for standing in final.standings if standing.choice not in raced)
    ranked = sorted(
        [*crossing.standings, *others], key=lambda s: (s.outcome != "winner", s.ratio is None, s.ratio or 0)
    )
    return final._replace(winner=crossing.winner, rounds=crossing.rounds, standings=tuple(ranked))


def _behind(standing: Standing, ratio: float) -> Standing:
    """A standing of the final beside the new winner, which did not race it: by way of the old one."""
    outcome = "failed" if standing.outcome == "failed" else "slower"
    beside = None if standing.ratio is None else standing.ratio * ratio
    return standing._replace(outcome=outcome, ratio=beside, ratio_ci95=None, regret=None)
