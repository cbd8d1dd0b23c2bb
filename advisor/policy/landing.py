"""The landing gate: whether what was tuned now takes the place of what the table says. Pure decisions.

A candidate lands where it beats the incumbent by the bar: the geometric mean, over the n that were raced, of the
incumbent's time over the candidate's, both from one interleaved race on this machine. With a workload every n weighs
what it is worth there; without one, only those n count at which the two differ. What has gone stale, fails now, or is
no longer at hand gives way without that; n and shapes that the table did not have are added. docs/landing.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from advisor.records import Choice, Problem, Verdict

BAR = 0.015
"""The landing bar. Source: design.md, "What makes an answer trustworthy", 5."""

FIRST, STALE, GONE, WRONG, OBJECTIVE, SAME, FASTER, EXTENDED, KEPT, UNRACED = (
    *("first", "stale", "gone", "wrong", "objective"),
    *("same", "faster", "extended", "kept", "unraced"),
)

LANDS = (FIRST, STALE, GONE, WRONG, OBJECTIVE, SAME, FASTER)
"""Decisions after which the candidate is the table. After `extended` new n are added and the old ones stay; after
`kept` and `unraced` all stays."""

Picks = Mapping[int, Choice]
"""What a table says at its tuned n, of whatever process part is best."""


class Compared(NamedTuple):
    """Incumbent and candidate at one n.

    Attributes:
        weight: what the n counts for; all add up to 1.
        ratio: the incumbent's time over the candidate's, 1 where they are one choice; None where no race has both.
        failed: the incumbent raced and failed.
    """

    n: int
    incumbent: Choice
    candidate: Choice
    weight: float
    ratio: float | None
    ratio_ci95: tuple[float, float] | None = None
    failed: bool = False


class Incumbent(NamedTuple):
    """What stands in the table for one shape.

    Attributes:
        picks: n -> choice; empty: nothing.
        changed: what its rows depend on and has changed, in words.
        gone: builds that are no longer at hand, in words.
        objective: what it was chosen for.
    """

    picks: Picks
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    objective: str = "latency"


class Decision(NamedTuple):
    """What becomes of a candidate.

    Attributes:
        verdict: one of the words above.
        why: a sentence.
        gain: the geometric mean that was compared with the bar; None where nothing was.
        bar: the least gain, less 1.
        compared: what was raced, an n each.
        added: n that the table did not have.
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

    @property
    def lands(self) -> bool:
        """Whether the candidate is the table now, at every n that was raced."""
        return self.verdict in LANDS

    @property
    def changes(self) -> bool:
        """Whether the table is another one afterwards: it landed, or n were added."""
        return self.lands or self.verdict == EXTENDED


def compare(
    verdicts: Sequence[Verdict], picks: Picks, candidate: Picks, weights: Mapping[int, float]
) -> tuple[Compared, ...]:
    """Both sides at every n that was raced and that the table has.

    Args:
        verdicts: final races of this run.
        picks: what the table says.
        candidate: what this run found best.
        weights: n -> share of the workload; empty: all alike.
    """
    found = []
    for verdict in verdicts:
        n = verdict.problem.n
        if n in picks and n in candidate:
            found.append(_at(verdict, picks[n], candidate[n], weights.get(n, 0.0) if weights else 1.0))
    if not weights:  # nothing is to be decided where both are one
        found = [one._replace(weight=float(one.incumbent != one.candidate)) for one in found]
    whole = sum(one.weight for one in found) or 1.0
    return tuple(one._replace(weight=one.weight / whole) for one in found)


def _at(verdict: Verdict, old: Choice, new: Choice, weight: float) -> Compared:
    times = {s.choice: s for s in verdict.standings}
    ours, theirs = times.get(old), times.get(new)
    if old == new:
        return Compared(verdict.problem.n, old, new, weight, 1.0, failed=ours is not None and ours.outcome == "failed")
    ratio = ours.summary.p25_ns / theirs.summary.p25_ns if ours and theirs and ours.summary and theirs.summary else None
    interval = ours.ratio_ci95 if ours and ratio is not None and new == verdict.winner else None
    failed = ours is not None and ours.outcome == "failed"
    return Compared(verdict.problem.n, old, new, weight, ratio, interval, failed)


def decide(old: Incumbent, compared: Sequence[Compared], objective: str, added: Sequence[int], bar: float) -> Decision:
    """Whether a candidate lands.

    Args:
        old: what stands in the table.
        compared: both at the n that were raced.
        objective: what the candidate was chosen for.
        added: n that were raced and that the table did not have.
        bar: the least gain, less 1.
    """
    gain = geometric_mean(compared)
    verdict, why = _verdict(old, compared, objective, gain, bar)
    if verdict in (KEPT, UNRACED) and added:
        verdict, why = EXTENDED, f"{why}; n = {', '.join(map(str, added))} added"
    return Decision(verdict, why, gain, bar, tuple(compared), tuple(added))


def _verdict(
    old: Incumbent, compared: Sequence[Compared], objective: str, gain: float | None, bar: float
) -> tuple[str, str]:
    failed = [one.n for one in compared if one.failed]
    if not old.picks:
        return FIRST, "the first table of this shape"
    if old.changed:
        return STALE, f"what the table says is stale: {'; '.join(old.changed)}"
    if old.gone:
        return GONE, f"what the table says is not at hand: {'; '.join(old.gone)}"
    if old.objective != objective:
        return OBJECTIVE, f"the table was chosen for {old.objective}, this one for {objective}"
    if failed:
        return WRONG, f"what the table says failed at n = {', '.join(map(str, failed))}"
    if compared and all(one.incumbent == one.candidate for one in compared):
        return SAME, "the same choices, measured anew"
    if gain is None:
        return UNRACED, "the table's choice was in no race, so it stays"
    told = f"{gain - 1:.1%} faster than the table, geometric mean"
    if gain >= 1 + bar:
        return FASTER, told
    return KEPT, f"{told}, under the bar of {bar:.1%}: the table's choices stay"


def geometric_mean(compared: Sequence[Compared]) -> float | None:
    """Of the ratios by their weights; None where nothing of any weight was raced."""
    known = [(one.weight, one.ratio) for one in compared if one.ratio is not None and one.weight > 0]
    whole = sum(weight for weight, _ in known)
    return math.exp(sum(weight * math.log(ratio) for weight, ratio in known) / whole) if known else None


def as_landed(verdicts: Sequence[Verdict], shape: Problem, picks: Picks) -> tuple[Verdict, ...]:
    """The races with what the table says as their winner, at every n that it has.

    What did not land once shall not come in through the log later.

    Args:
        verdicts: of one shape or several.
        shape: a problem of the table's shape.
        picks: what the table says.
    """
    return tuple(_as_landed(verdict, shape, picks) for verdict in verdicts)


def _as_landed(verdict: Verdict, shape: Problem, picks: Picks) -> Verdict:
    n = verdict.problem.n
    wanted = picks.get(n)
    if verdict.purpose != "final" or wanted in (None, verdict.winner) or shape._replace(n=n) != verdict.problem:
        return verdict
    own = next((s for s in verdict.standings if s.choice == wanted and s.summary), None)
    if own is None or own.summary is None:
        return verdict
    base = own.summary.p25_ns
    standings = tuple(
        s._replace(ratio=s.summary.p25_ns / base, ratio_ci95=None, outcome=_outcome(s.choice == wanted, s.outcome))
        if s.summary
        else s
        for s in verdict.standings
    )
    return verdict._replace(winner=own.choice, standings=standings)


def _outcome(is_winner: bool, outcome: str) -> str:
    """What won by less than counts has not been told apart from what stays."""
    return "winner" if is_winner else "tie" if outcome == "winner" else outcome


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
