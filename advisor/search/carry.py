"""Seeds from elsewhere: what other machines would take here, looked at early, no more.

A full search takes the two best ways' choices. A quick one has few looks, and spends those that the ways leave, which
mostly agree, on what other machines are least sure of among what may be best: mean less spread of a choice's log time
over the best there. What all of them agree on needs no further look to be in the race.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import chain

from advisor.records import Choice, Machine, Problem
from advisor.search.elsewhere import Elsewhere, Group, machines
from advisor.search.learned import learn
from advisor.search.portable import RULES, Portable, by_program, listed
from advisor.search.rungs import Asked, Candidate, Guess, Way, candidates, common, learned, middles, nearest
from advisor.search.traits import spot_of

MOST, MOST_QUICK = 2, 6
"""Choices taken over for a problem: they are guesses, and each costs a first look and perhaps a build."""


def taken_over(
    machine: Machine,
    problem: Problem,
    choices: Sequence[Choice],
    *,
    quick: bool = False,
    known: Sequence[Elsewhere] | None = None,
) -> tuple[Choice, ...]:
    """What other machines would take here, in the order in which it is worth a look.

    Args:
        machine: this one.
        problem: what is tuned.
        choices: the space here; what is not in it is left out.
        quick: whether looks are few.
        known: the machines that were tuned; None: those found beside this one and among the shipped policies.
    """
    known = machines(problem.kernel, machine) if known is None else known
    group = _group(known, problem)
    if group is None:
        return ()
    programs, most = by_program(choices), MOST_QUICK if quick else MOST
    asked = Asked(spot_of(machine), lambda what: (what.variant, what.knobs) in programs, group, problem.n)
    guesses: list[Guess | Candidate] = [*in_order([guess for _, guess in everything(known, asked, quick)], quick)]
    found: dict[Choice, None] = {}
    for one in chain(guesses, unsure(known, asked) if quick else ()):
        choice = listed(one.what, one.like, programs)
        found |= {} if choice is None else {choice: None}
        if len(found) == most:
            break
    return tuple(found)


def everything(known: Sequence[Elsewhere], asked: Asked, with_model: bool) -> list[tuple[Way, Guess]]:
    """What every way takes, a rung's rules in order; the model only where its fit, some tenths of a second, pays."""
    model = learn(known, asked.group) if with_model else None
    found = [
        *((Way("nearest", rule), nearest(known, asked, rule)) for rule in RULES),
        *((Way("common", rule), common(known, asked, rule)) for rule in RULES),
        (Way("learned"), learned(known, asked, model)),
    ]
    return [(way, guess) for way, guess in found if guess is not None]


def unsure(known: Sequence[Elsewhere], asked: Asked) -> list[Candidate]:
    """All that was measured elsewhere and can run here, what may be best first.

    By the mean over machines of the log of its time over the best, less their disagreement on it. A machine that does
    not know it counts as the middle of what it measured.
    """
    found = {one.what: one for rule in RULES for one in candidates(known, asked, rule)}
    middle = middles(list(found.values()))

    def bound(one: Candidate) -> tuple[float, int, str]:
        logs = [one.logs.get(place, log) for place, log in middle.items()]
        return statistics.fmean(logs) - statistics.pstdev(logs), one.what.threads, repr(one.what)

    return sorted(found.values(), key=bound)


def in_order(guesses: Sequence[Guess], quick: bool) -> list[Guess]:
    """Distinct guesses: as they come, or in a quick search the first and then the least sure."""
    found: dict[Portable, Guess] = {}
    for guess in guesses:
        found.setdefault(guess.what, guess)
    distinct = list(found.values())
    if not quick:
        return distinct
    return distinct[:1] + sorted(distinct[1:], key=lambda guess: -min(guess.spread, math.inf))


def _group(known: Sequence[Elsewhere], problem: Problem) -> Group | None:
    """The problem without its n as other machines have it; the most alike shape where none has this one."""
    wanted = problem.dtype, problem.regime, problem.shape
    groups = sorted({group for machine in known for group in machine.cells if group[0] == problem.dtype})
    return min(groups, key=lambda group: (group != wanted, _unlike(group, wanted), group), default=None)


def _unlike(one: Group, other: Group) -> int:
    return len(set(one[2]) ^ set(other[2])) + (one[1] != other[1])
