"""Findings of section 4 on GPUs that are about steps of the chain: GV's atomic, GK's, bytes against time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.validate import published
from advisor.validate.device_common import GROWTH_N, LARGE_N, MOVES_MORE, both_counted, no_counts, reasons
from advisor.validate.device_judge import DeviceEvidence, line, mechanism, moved_bytes, over, passing, quantity
from advisor.validate.device_records import Step
from advisor.validate.records import NOT_TESTABLE, Estimate
from advisor.validate.roles import Role, StepOf
from advisor.validate.verdicts import APART, CLEAR, Case, above, below, decided, within, words

LEVEL = 1.02
"""A ratio whose whole interval lies this near to 1 at the largest n is neither gain nor loss."""

GAIN = 0.6
"""New over old at most, where the paper says twice as fast: a sixth more than .5."""


def _step_words(own: Sequence[Step]) -> str:
    low, high = (f(one.ratio.value for one in own) for f in (min, max))
    ends = f"{own[0].ratio.value:.2f} at n={own[0].n}, {own[-1].ratio.value:.2f} at {own[-1].n}"
    return f"{low:.2f} to {high:.2f}; {ends}"


def everywhere(faster: bool, step: StepOf, new: Role, old: Role, evidence: DeviceEvidence) -> Case:
    """Whether new is faster, or slower, than old at every n."""
    own = line(evidence.steps, step.key, new.mapping, new.form)
    if not own:
        return Case("-", NOT_TESTABLE, f"{new.name} and {old.name} were not measured in one race")
    ours = _step_words(own)
    if own[-1].n < LARGE_N:
        return Case(ours, NOT_TESTABLE, f"the largest n is under {LARGE_N}")
    as_said, against = (below, above) if faster else (above, below)
    good = [one for one in own if as_said(one.ratio, 1 / APART if faster else APART)]
    bad = [one for one in own if against(one.ratio, APART if faster else 1 / APART)]
    level = within(own[-1].ratio, 1 / LEVEL, LEVEL)
    held, lost = not bad and own[-1] in good, bool(bad) or level
    apart = f"{new.name} / {old.name}; {'faster' if faster else 'slower'} at {len(good)} of {len(own)} n"
    why = reasons(apart, mechanism(evidence, new, old) if lost else "")
    return decided(held, lost, (ours, why), own[-1].ratio)


def halves(step: StepOf, new: Role, old: Role, evidence: DeviceEvidence) -> Case:
    """New over old at the largest n."""
    own = line(evidence.steps, step.key, new.mapping, new.form)
    if not own:
        return Case("-", NOT_TESTABLE, f"{new.name} and {old.name} were not measured in one race")
    last = own[-1]
    if last.n < LARGE_N:
        return Case(_step_words(own), NOT_TESTABLE, f"the largest n is under {LARGE_N}")
    bad = above(last.ratio, GAIN)
    why = reasons(f"{new.name} / {old.name}; up to {GAIN} at n={last.n}", mechanism(evidence, new, old) if bad else "")
    return decided(below(last.ratio, GAIN), bad, (_step_words(own), why), last.ratio)


def paper_crossing() -> float:
    """Where GK's atomic begins to pay in fused, between the paper's two sizes."""
    name = "fused new/old after GK atomic removed"
    found = passing((2048, published.on_gpu(name, n=2048)), (4096, published.on_gpu(name, n=4096)))
    return found or 0.0


def crosses(step: StepOf, new: Role, old: Role, evidence: DeviceEvidence) -> Case:
    """Faster at small n and slower at large: whether, and where, by interpolation."""
    own = line(evidence.steps, step.key, new.mapping, new.form)
    if not own:
        return Case("-", NOT_TESTABLE, f"{new.name} and {old.name} were not measured in one race")
    rising = [c.n for c in evidence.crossings if _is_of(c, step, new) and c.rising]
    where = f"; passes 1 at about n={rising[-1]:.0f}" if rising else "; never passes to above 1"
    ours = _step_words(own) + where
    if own[-1].n < GROWTH_N:
        return Case(ours, NOT_TESTABLE, f"the largest n is under {GROWTH_N}")
    gained, lost = any(below(one.ratio, 1.0) for one in own[:-1]), above(own[-1].ratio, 1.0)
    never = below(own[-1].ratio, 1.0) or not any(one.ratio.low is None or one.ratio.low <= 1 for one in own)
    paper = f"{new.name} / {old.name}; the paper's passes at about n={paper_crossing():.0f}"
    why = reasons(paper, mechanism(evidence, new, old) if never else "")
    return decided(gained and lost and bool(rising), never, (ours, why), own[-1].ratio)


def _is_of(one: object, step: StepOf, role: Role) -> bool:
    keys = (step.key, role.mapping, role.form)
    return tuple(getattr(one, name) for name in ("step", "mapping", "form")) == keys


def traffic(free: Role, gk: Role, evidence: DeviceEvidence) -> Case:
    """Bytes of fused without atomics over those with GK's, beside the ratio of times at that n."""
    found = _bytes_and_time(free, gk, evidence)
    if isinstance(found, Case):
        return found
    moved, time, ours = found
    more = moved >= MOVES_MORE
    why = f"from {MOVES_MORE}x the bytes on, and slower; {free.name} / {gk.name}"
    bad = below(time, 1.0) or moved <= CLEAR
    case = ours, reasons(why, mechanism(evidence, free, gk) if bad else "")
    if not (more or bad):
        return Case(ours, NOT_TESTABLE, f"{why}; between {CLEAR}x and {MOVES_MORE}x nothing is told of bytes")
    return decided(more and above(time, 1.0), bad, case, time)


def saving(gk: Role, naive: Role, evidence: DeviceEvidence) -> Case:
    """Bytes of fused over those of forward and backward, beside the ratio of times."""
    found = _bytes_and_time(gk, naive, evidence)
    if isinstance(found, Case):
        return found
    moved, time, ours = found
    saved = moved < 1 / CLEAR
    bad = (saved and above(time, 1.0)) or moved >= CLEAR
    why = f"fewer bytes by {CLEAR}x at least, and faster; {gk.name} / {naive.name}"
    case = ours, reasons(why, mechanism(evidence, gk, naive) if bad else "")
    if not (saved or bad):
        return Case(ours, NOT_TESTABLE, f"{why}; bytes within {CLEAR}x of each other tell nothing")
    return decided(saved and below(time, 1.0), bad, case, time)


def _bytes_and_time(new: Role, old: Role, evidence: DeviceEvidence) -> tuple[float, Estimate, str] | Case:
    pair = both_counted(evidence, new, old)
    moved = [moved_bytes(one.call) for one in pair] if pair else []
    if pair is None or not all(moved):
        return no_counts(evidence, f"{new.name} and {old.name} at one n", new, old)
    a, b = (value or 1.0 for value in moved)
    time = over(evidence, new, old, pair[0].n)
    ours = f"{quantity(a, 'B')} beside {quantity(b, 'B')}: {a / b:.2f}x; time {words(time)}x (n={pair[0].n})"
    if time is None:
        return Case(ours, NOT_TESTABLE, "not both were timed at that n")
    if pair[0].n < LARGE_N:
        return Case(ours, NOT_TESTABLE, f"counted under n={LARGE_N}, where the L2 holds what is kept: more --budget")
    return a / b, time, ours
