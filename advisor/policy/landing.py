"""The landing gate: whether what was tuned now takes the place of what the table says. Pure decisions.

At every n that was raced either the incumbent or the candidate stands afterwards. The candidate does where the table
said nothing, or what it said failed, is stale, or is not at hand; everywhere else only where it was compared with the
incumbent and has run in a fresh process, and if the gain of all such n reaches the bar: the geometric mean of the
incumbent's figure over the candidate's, by the objective, both from this run. With a workload every n weighs what it is
worth there; without one, only those n count at which the two differ. docs/landing.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from advisor.records import Choice, Verdict
from advisor.search.objective import Figures, lost_by
from advisor.search.settled import is_settled

BAR = 0.015
"""The landing bar. Source: design.md, "What makes an answer trustworthy", 5."""

FIRST, STALE, GONE, WRONG, OBJECTIVE, SAME, FASTER, EXTENDED, KEPT, UNRACED, UNCHECKED, OVERTAKEN = (
    *("first", "stale", "gone", "wrong", "objective"),
    *("same", "faster", "extended", "kept", "unraced", "unchecked", "overtaken"),
)

LANDS = (FIRST, STALE, GONE, WRONG, OBJECTIVE, SAME, FASTER)
"""Decisions after which a candidate stands somewhere in the place of an incumbent, or with new figures. After
`extended` new n are added and the old ones stay; after the others all stays."""

Picks = Mapping[int, Choice]
"""What a table says at its tuned n, of whatever process part is best."""


class Compared(NamedTuple):
    """Incumbent and candidate at one n.

    Attributes:
        weight: what the n counts for; all add up to 1.
        ratio: the incumbent's figure over the candidate's, 1 where they are one choice; None where this run has not
            both: they were not in one race, or the objective's figure was taken of one alone.
        failed: the incumbent raced and failed.
        checked: the candidate has run in a fresh process.
        open: the race had too few rounds to rank by, or ended in a tie of the two.
    """

    n: int
    incumbent: Choice
    candidate: Choice
    weight: float
    ratio: float | None
    ratio_ci95: tuple[float, float] | None = None
    failed: bool = False
    checked: bool = True
    open: bool = False

    @property
    def tied(self) -> bool:
        """Whether the race could not tell the two apart, or the interval holds 1: that is no gain."""
        return self.open or (self.ratio_ci95 is not None and self.ratio_ci95[0] <= 1.0 <= self.ratio_ci95[1])

    @property
    def gain(self) -> float | None:
        """The ratio, 1 for a tie."""
        return 1.0 if self.tied else self.ratio


class Incumbent(NamedTuple):
    """What stands in the table for one shape.

    Attributes:
        picks: n -> choice; empty: nothing.
        changed: what its rows depend on and has changed, in words.
        gone: builds that are no longer at hand, in words.
        objective: what it was chosen for.
        lost: n at which the choice is stale or not at hand.
    """

    picks: Picks
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    objective: str = "latency"
    lost: frozenset[int] = frozenset()


class Decision(NamedTuple):
    """What becomes of a candidate.

    Attributes:
        verdict: one of the words above.
        why: a sentence.
        gain: the geometric mean that was compared with the bar; None where nothing was.
        bar: the least gain, less 1.
        compared: what was raced, an n each.
        added: n that the table did not have.
        taken: n at which the candidate stands now.
        failed: (n, choice) that raced or won, and crashed or was wrong there or in a fresh process: no candidate.
        outside: a sentence on the calls of the workload that count for nothing; empty where there are none.
    """

    verdict: str
    why: str
    gain: float | None
    bar: float
    compared: tuple[Compared, ...] = ()
    added: tuple[int, ...] = ()
    failed: tuple[tuple[int, Choice], ...] = ()
    outside: str = ""
    taken: tuple[int, ...] = ()

    @property
    def lands(self) -> bool:
        """Whether the candidate stands in the place of the incumbent where it may: see `taken`."""
        return self.verdict in LANDS and bool(self.taken)

    @property
    def changes(self) -> bool:
        """Whether the table is another one afterwards: at some n it landed, or was added."""
        return bool(self.taken)


class Found(NamedTuple):
    """What a run found at one n: the race, the figures of all that raced, whether the candidate is checked."""

    race: Verdict
    candidate: Choice
    figures: Sequence[Figures]
    checked: bool = True


def compare(
    found: Sequence[Found], old: Incumbent, objective: str, weights: Mapping[int, float]
) -> tuple[Compared, ...]:
    """Both sides at every n that was raced and that the table has.

    Args:
        found: at each n.
        old: what the table says.
        objective: by whose figures they are compared.
        weights: n -> share of the workload; empty: all alike.
    """
    here = [_at(one, old.picks[one.race.problem.n], objective) for one in found if one.race.problem.n in old.picks]
    if weights:
        here = [one._replace(weight=weights.get(one.n, 0.0)) for one in here]
    else:  # nothing is to be decided where both are one
        here = [one._replace(weight=float(one.incumbent != one.candidate)) for one in here]
    whole = sum(one.weight for one in here) or 1.0
    return tuple(one._replace(weight=one.weight / whole) for one in here)


def _at(found: Found, old: Choice, objective: str) -> Compared:
    race, new = found.race, found.candidate
    ours = next((s for s in race.standings if s.choice == old), None)
    at = Compared(
        race.problem.n, old, new, 1.0, 1.0, None, ours is not None and ours.outcome == "failed", found.checked
    )
    if old == new:
        return at._replace(checked=True)
    interval = ours.ratio_ci95 if ours and objective == "latency" and new == race.winner else None
    ratio = lost_by(found.figures, objective, old, new)
    tie = ours is not None and ours.outcome == "tie" and objective == "latency" and new == race.winner
    known = ratio is not None
    return at._replace(
        ratio=ratio, ratio_ci95=interval if known else None, open=known and (tie or not is_settled(race))
    )


def decide(old: Incumbent, compared: Sequence[Compared], objective: str, added: Sequence[int], bar: float) -> Decision:
    """Whether a candidate lands, and at which n.

    Args:
        old: what stands in the table.
        compared: both at the n that were raced.
        objective: what the candidate was chosen for.
        added: n that were raced and that the table did not have.
        bar: the least gain, less 1.
    """
    gain = geometric_mean([one for one in compared if one.checked and not one.failed and one.n not in old.lost])
    verdict, why = _verdict(old, compared, objective, gain, bar)
    if verdict in (KEPT, UNRACED, UNCHECKED) and added and old.objective == objective:
        verdict, why = EXTENDED, f"{why}; n = {', '.join(map(str, added))} added"
    won = [one.n for one in compared if _takes(one, old, objective, gain is not None and gain >= 1 + bar)]
    if verdict == OBJECTIVE and not won and not added:
        verdict = UNCHECKED
    taken = tuple(sorted([*won, *added])) if verdict in (*LANDS, EXTENDED) else ()
    return Decision(verdict, why, gain, bar, tuple(compared), tuple(added), taken=taken)


def _takes(one: Compared, old: Incumbent, objective: str, reached: bool) -> bool:
    """Whether the candidate stands at one n afterwards."""
    if one.failed or one.n in old.lost or one.incumbent == one.candidate:
        return True
    return one.checked and (old.objective != objective or (reached and one.ratio is not None and not one.tied))


def _verdict(
    old: Incumbent, compared: Sequence[Compared], objective: str, gain: float | None, bar: float
) -> tuple[str, str]:
    failed = [one.n for one in compared if one.failed]
    unchecked = [one.n for one in compared if not (one.checked or one.failed or one.n in old.lost)]
    waits = f"no time to run the candidate once more in a fresh process at n = {', '.join(map(str, unchecked))}"
    if not old.picks:
        return FIRST, "the first table of this shape"
    if old.changed:
        return STALE, f"what the table says is stale: {'; '.join(old.changed)}"
    if old.gone:
        return GONE, f"what the table says is not at hand: {'; '.join(old.gone)}"
    if old.objective != objective:
        told = f"the table was chosen for {old.objective}, this one for {objective}"
        return OBJECTIVE, f"{told}; {waits}: what the table says there stays" if unchecked else told
    if failed:
        return WRONG, f"what the table says failed at n = {', '.join(map(str, failed))}"
    if compared and all(one.incumbent == one.candidate for one in compared):
        return SAME, "the same choices, measured anew"
    if gain is None and unchecked:
        return UNCHECKED, f"{waits}: what the table says stays"
    if gain is None:
        return UNRACED, "the table's choice was not measured beside the candidate, so it stays"
    told = f"{gain - 1:.1%} better than the table, geometric mean"
    if gain >= 1 + bar:
        return FASTER, told
    return KEPT, f"{told}, under the bar of {bar:.1%}: the table's choices stay"


def settled(old: Incumbent, candidate: Picks, decision: Decision, objective: str) -> dict[int, Choice]:
    """What stands at every n after a decision: the candidate where it has landed, elsewhere what the table says.

    Of another objective's table nothing is settled at the n that were not raced: what is known there is chosen anew.
    """
    raced = {one.n: one.incumbent for one in decision.compared}
    kept = old.picks if old.objective == objective else raced
    stays = {n: choice for n, choice in kept.items() if n not in old.lost}
    return {**stays, **{n: candidate[n] for n in decision.taken if n in candidate}}


def geometric_mean(compared: Sequence[Compared]) -> float | None:
    """Of the gains by their weights; None where nothing of any weight has one."""
    known = [(one.weight, one.gain) for one in compared if one.gain is not None and one.weight > 0]
    whole = sum(weight for weight, _ in known)
    return math.exp(sum(weight * math.log(ratio) for weight, ratio in known) / whole) if known else None


def mechanism(old: Choice, new: Choice) -> str:
    """What a candidate does otherwise, in words: `threads 2 -> 4; placement none -> take core 4`."""
    parts = [(name, getattr(old.build, name), getattr(new.build, name)) for name in ("variant", "compiler", "flags")]
    knobs = dict(old.build.knobs), dict(new.build.knobs)
    if old.build.variant == new.build.variant:
        parts += [(name, knobs[0].get(name), knobs[1].get(name)) for name in sorted({*knobs[0], *knobs[1]})]
        parts.append(("source", old.build.source_hash, new.build.source_hash))
    for kind in ("team", "process"):
        one, other = getattr(old, kind), getattr(new, kind)
        fields: Any = (one or other)._fields if one or other else ()
        parts += [(name, getattr(one, name, None), getattr(other, name, None)) for name in fields]
    return "; ".join(f"{name} {was} -> {now}" for name, was, now in parts if was != now)
