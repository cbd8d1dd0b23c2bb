"""Beside the best: what a search that follows a model leaves out, and one look each settles before the race.

A model that saw a part of a choice only in bad company thinks little of it. A variant without knobs has few places in
the list and was looked at with the wrong team, half as many threads with another placement: so on simulated machines up
to a quarter of the time was lost. The looks here change one part of the best choice and keep all others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import zip_longest

from advisor.records import Choice, Process
from advisor.search import bounds

MOST, PASSES = 8, 4
"""Looks beside the best at most, in a pass; and passes, each beside what the one before found better."""

LEADERS = 2
"""Variants whose best is stepped from on a device."""

ON_DEVICE, CHEAP_S = 24, 0.2
"""Looks beside the best at most on a device, in all passes, where a look takes no longer than so many seconds."""

RESERVE = 4
"""One in so many of the first looks that a small space allows is kept for these."""


def reserved(most: int) -> int:
    """How many of the first looks allowed are kept for looks beside the best."""
    return min(MOST, most // RESERVE)


def beside(choices: Sequence[Choice], order: Sequence[Choice], tried: Collection[Choice]) -> tuple[Choice, ...]:
    """Listed choices not yet tried that differ from the best in one part.

    First each other variant on the same team, in the build that looked best; then half and twice the threads; then
    other ways to wait and other memory policies; then other placements. Where there is no team, on a device: its knobs
    in the other variants that have them; then the same variant with one knob a step up or down, since knobs are its
    threads, and variants were compared by their seeds; then with two.

    Args:
        choices: the space, or what of it may win.
        order: what was looked at and ran, best first.
        tried: what was looked at, whatever came of it.
    """
    if not order:
        return ()
    best = order[0]
    wanted = _in_company(choices, order, tried) if best.team else _step_by_step(choices, order)
    return tuple(dict.fromkeys(choice for choice in wanted if choice not in tried))[:MOST]


def _in_company(choices: Sequence[Choice], order: Sequence[Choice], tried: Collection[Choice]) -> list[Choice]:
    """One part changed: the variant, the threads, the way to wait, the placement."""
    best = order[0]
    threads, twins = _threads(choices, best), bounds.twins(choices, best)
    return [*_variants(choices, order, tried), *threads, *twins, *_placements(choices, best)]


def _variants(choices: Sequence[Choice], order: Sequence[Choice], tried: Collection[Choice]) -> list[Choice]:
    """Every other variant on the best one's team, waiting alike, unless it was tried there or never ran."""
    best, place = order[0], _place(order[0])
    names = dict.fromkeys(choice.build.variant for choice in choices)
    there = {choice.build.variant for choice in tried if _place(choice) == place}
    broken = {choice.build.variant for choice in tried} - {choice.build.variant for choice in order}
    builds = {choice.build.variant: choice.build for choice in reversed(order)}
    left = [name for name in names if name != best.build.variant and name not in there and name not in broken]
    listed = [c for c in choices if c.build.variant in left and _place(c) == place]
    first = {choice.build.variant: choice for choice in reversed(listed)}
    return list({**first, **{c.build.variant: c for c in listed if c.build == builds.get(c.build.variant)}}.values())


def _place(choice: Choice) -> tuple[object, ...]:
    """Team and process part, whatever the runtime's name: a library's threads wait and lie alike."""
    process = choice.process or Process("", "default", None, "default")
    return choice.team, process.wait_policy, process.spin, process.memory_policy


def _threads(choices: Sequence[Choice], best: Choice) -> list[Choice]:
    """The same build with the counts nearest to half and to twice the threads, placed alike; half of them also spread.

    A placement that puts more threads on the same CPUs may have no other name than the simplest one, and half of the
    threads with one on each core have another name than half of the cores.
    """
    if best.team is None:
        return []
    same = [c for c in choices if c.team and (c.build, c.process) == (best.build, best.process)]
    count, counts = best.team.threads, sorted({bounds.threads_of(choice) for choice in same})
    below, above = [other for other in counts if other < count], [other for other in counts if other > count]
    half = [min(below, key=lambda other: abs(math.log(2 * other / count)))] if below else []
    twice = [min(above, key=lambda other: abs(math.log(other / 2 / count)))] if above else []
    sized = [[c for c in same if bounds.threads_of(c) == other] for other in (*half, *twice)]
    placed = [next((c for c in few if c.team and c.team.placement == best.team.placement), few[0]) for few in sized]
    return [*placed, *(few[-1] for few in sized[: len(half)])]


def _placements(choices: Sequence[Choice], best: Choice) -> list[Choice]:
    """The same build, threads and process part, placed otherwise."""
    alike = (best.build, best.process, bounds.threads_of(best))
    return [c for c in choices if (c.build, c.process, bounds.threads_of(c)) == alike and c.team != best.team]


def _step_by_step(choices: Sequence[Choice], order: Sequence[Choice]) -> list[Choice]:
    """The best one's knobs in its siblings; one step from the best choice of each of the best variants, in turn; two
    from the best of all."""
    best: dict[str, Choice] = {}
    for choice in order:
        best.setdefault(choice.build.variant, choice)
    turns = zip_longest(*(_steps(choices, leader, 1) for leader in list(best.values())[:LEADERS]))
    single = [choice for turn in turns for choice in turn if choice is not None]
    chosen = any(choice.build.variant == order[0].build.variant for choice in order[1:])  # among knobs of its own
    return [*(siblings(choices, order[0], best) if chosen else ()), *single, *_steps(choices, order[0], 2)]


def siblings(choices: Sequence[Choice], best: Choice, among: Collection[str]) -> list[Choice]:
    """The knobs of a choice in each other of these variants that has the same ones, of the same tool."""
    tool, knobs = best.build.compiler, best.build.knobs
    alike = [c for c in choices if knobs and (c.build.compiler, c.build.knobs) == (tool, knobs)]
    return [c for c in alike if c.build.variant in among and c.build.variant != best.build.variant]


def _steps(choices: Sequence[Choice], best: Choice, count: int) -> list[Choice]:
    """The same variant with so many knobs at the next listed value, up or down."""
    same = [c for c in choices if c.build._replace(knobs=()) == best.build._replace(knobs=())]
    own = dict(best.build.knobs)
    values = {name: sorted({dict(c.build.knobs)[name] for c in same}) for name in own}

    def step(choice: Choice) -> list[int]:
        knobs = dict(choice.build.knobs)
        return [abs(listed.index(knobs[name]) - listed.index(own[name])) for name, listed in values.items()]

    return [choice for choice in same if max(moved := step(choice), default=0) == 1 and sum(moved) == count]
