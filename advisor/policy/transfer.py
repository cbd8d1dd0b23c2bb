"""Answers for a machine that was never tuned: a table made of what other machines' tables and logs say.

The ladder and how it is checked: search/rungs.py. What comes out is an ordinary table whose sections say TRANSFERRED or
MODELLED, so that a lookup needs nothing of this. `advisor recommend` makes it on the fly where a kernel has no table,
`advisor transfer --save` keeps it for servers.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from advisor.errors import AdvisorError
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, for_machine, made_at
from advisor.policy.existing import within
from advisor.policy.store import with_id
from advisor.records import Choice, Machine, Pairs, Problem, Row, Section, Table, pairs
from advisor.search import costs
from advisor.search.elsewhere import Elsewhere, Group
from advisor.search.learned import Learned, learn
from advisor.search.portable import Portable, able, by_program, listed, portable, process_of
from advisor.search.rungs import Asked, Checked, Guess, Ladder, Way, check, default_of, guessed, knows
from advisor.search.space import SpaceOptions, default_choice, space
from advisor.search.traits import spot_of

DEPENDS = ("source_hash", "compiler")
"""What makes a transferred row stale: it was a guess, and holds no better on another kernel of the operating system."""

Part = tuple[str, int | None, str]
"""A process part without its runtime."""

PLAIN: Part = ("default", None, "default")
"""The process part of a server that nobody started in a special way."""

FARTHEST = 1.5
"""Time over the best of any process part up to which what was measured under one speaks for that one. Beyond it the
best program of all was hardly tried under that part, and is taken itself."""

FREE, HERE, LENT = "free", "here", "lent"
"""How an answer under a process part was come by: the best of any part has this part; the best that was measured under
this part; the best of any part, which nobody measured under this one."""


Programs = dict[tuple[str, Pairs], list[Choice]]
"""Variant and knobs -> choices."""


class Here(NamedTuple):
    """The machine that is answered for, and what it can run.

    Attributes:
        machine: it, with its signature where it has one.
        spec: the kernel's.
        variants: all of the kernel's for this kind of machine, with their header's knobs: other machines may be able
            to run what this one cannot.
        options: its tools and flag sets.
    """

    machine: Machine
    spec: KernelSpec
    variants: tuple[Variant, ...]
    options: SpaceOptions


class Told(NamedTuple):
    """What one n takes: the way, its guess, the listed choice that is meant, and how it came to this process part."""

    way: Way
    guess: Guess
    choice: Choice
    how: str = FREE


class _Ground(NamedTuple):
    """What answers of one problem are made from."""

    here: Here
    known: tuple[Elsewhere, ...]
    group: Group
    ladder: Ladder
    model: Learned | None


def transferred(
    here: Here, known: Sequence[Elsewhere], wanted: Sequence[Problem] = (), given: Mapping[str, Any] | None = None
) -> Table | None:
    """The table of one kernel for a machine that has none.

    Args:
        here: the machine.
        known: the others that were tuned.
        wanted: problems to answer by the cost model where nobody measured their shape.
        given: entries of the shape, dtype and regime: problems with others are passed over.

    Returns:
        The table; None where nothing is known that can run here, and there is no signature for the cost model.
    """
    groups = sorted({group for machine in known for group in machine.cells if _fits(group, given or {})})
    sections = [section for group in groups for section in _sections(_ground(here, known, group))]
    asked = {(p.dtype, p.regime, p.shape): [q for q in wanted if q._replace(n=0) == p._replace(n=0)] for p in wanted}
    answered = {(section.dtype, section.regime, section.shape) for section in sections}
    sections += [s for group, problems in asked.items() if group not in answered for s in _modelled(here, problems)]
    if not sections:
        return None
    unread = {one.name: one.unread for one in known if one.unread}
    told = {"made": "transfer", "created": _now(), **({"unread_log_bytes": unread} if unread else {})}
    machine, provenance = here.machine, pairs(told)
    ids = machine.hardware_id, machine.limits_id
    return with_id(Table(here.spec.name, *ids, machine.environment, tuple(sections), provenance))


def _fits(group: Group, given: Mapping[str, Any]) -> bool:
    dtype, regime, shape = group
    told = {"dtype": dtype, "regime": regime, **dict(shape)}
    return all(told.get(name) == value for name, value in given.items())


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


def ladder(here: Here, known: Sequence[Elsewhere], group: Group) -> Ladder:
    """The ways for one problem, checked on every known machine left out in turn."""

    def modelled(machine: Elsewhere, of: Group, n: int) -> Portable | None:
        cost = costs.cheapest(machine.machine, here.spec, _problem(here.spec, of, n))
        return None if cost is None else default_of(machine, of, cost.team.threads)

    can = {machine.name: able(here.variants, machine.machine) for machine in known}
    return check(known, group, lambda one, what: can[one.name](what), modelled)


def _problem(spec: KernelSpec, group: Group, n: int) -> Problem:
    dtype, regime, shape = group
    return Problem(spec.name, dtype, shape, n, regime)


def _ground(here: Here, known: Sequence[Elsewhere], group: Group) -> _Ground:
    own = tuple(machine for machine in known if group in machine.cells)
    return _Ground(here, own, group, ladder(here, own, group), learn(own, group))


# --- sections ---


def _sections(ground: _Ground) -> list[Section]:
    """A section for the plain process part, and one for each that somebody's best choice needs."""
    sizes = sorted({n for machine in ground.known for n in machine.picks.get(ground.group, ())})
    free = {n: told for n in sizes if (told := _told(ground, n, None)) is not None}
    parts = {process_of(told.choice.process) for told in free.values()} | {PLAIN}
    found = []
    for part in sorted(parts, key=lambda part: (part != PLAIN, repr(part))):
        own = {n: _under(ground, n, part, told) for n, told in free.items()}
        rows = {n: told for n, told in own.items() if told is not None}
        if rows:
            won = [n for n, told in free.items() if process_of(told.choice.process) == part]
            found.append(_section(ground, rows, won))
    return found


def _told(ground: _Ground, n: int, part: Part | None) -> Told | None:
    """What the first way that knows something takes at n, under one process part or any."""
    problem = _problem(ground.here.spec, ground.group, n)
    programs, asked = _asked(ground, problem, part)
    for way, _ in ground.ladder.ways:
        guess = _modelled_guess(ground, problem) if way.rung == "model" else None
        guess = guess or guessed(way, ground.known, asked, ground.model)
        if guess is not None:
            choice = listed(guess.what, guess.like, programs)
            if choice is not None and (part is None or process_of(choice.process) == part):
                return Told(way, guess, choice)
    return None


def _asked(ground: _Ground, problem: Problem, part: Part | None) -> tuple[Programs, Asked]:
    """The choices that are listed here, by program, and what is asked of other machines."""
    programs = by_program(_listed(ground.here, problem))
    processes = None if part is None else frozenset({part})

    def runs(what: Portable) -> bool:
        return (what.variant, what.knobs) in programs

    return programs, Asked(spot_of(ground.here.machine), runs, ground.group, problem.n, processes)


def _under(ground: _Ground, n: int, part: Part, free: Told) -> Told | None:
    """What is taken at n under one process part.

    Args:
        ground: what is known.
        n: the size.
        part: the process part.
        free: what is taken at n where any part may be.
    """
    own = process_of(free.choice.process)
    alone = free.choice.team is not None and free.choice.team.threads == 1
    if own == part or (alone and own[2] == part[2]):  # one thread waits for nobody
        return free._replace(choice=_with_part(free.choice, part))
    found, lent = _told(ground, n, part), _lent(ground, n, part, free)
    there = None if found is None else found._replace(how=HERE)
    if there is None or lent is None:
        return there or lent
    near = there.guess.off is not None and there.guess.off <= math.log(FARTHEST)
    asked = _asked(ground, _problem(ground.here.spec, ground.group, n), part)[1]
    return there if near or knows(ground.known, asked, portable(lent.choice)) else lent


def _with_part(choice: Choice, part: Part) -> Choice:
    process = choice.process
    if process is None:
        return choice
    return choice._replace(process=process._replace(wait_policy=part[0], spin=part[1], memory_policy=part[2]))


def _lent(ground: _Ground, n: int, part: Part, free: Told) -> Told | None:
    """The program and team of an answer under another process part; None where its runtime has no such part."""
    programs, _ = _asked(ground, _problem(ground.here.spec, ground.group, n), part)
    wanted = _with_part(free.choice, part)
    choice = listed(portable(wanted), free.choice, programs)
    meant = choice is not None and portable(choice) == portable(wanted)
    return free._replace(choice=choice, how=LENT) if choice is not None and meant else None


def _listed(here: Here, problem: Problem) -> Sequence[Choice]:
    try:
        return space(here.machine, here.spec, for_machine(here.variants, here.machine), problem, here.options)
    except AdvisorError:
        return ()


def _modelled_guess(ground: _Ground, problem: Problem) -> Guess | None:
    """The default build with the team that the cost model takes."""
    found = _modelled_choice(ground.here, problem)
    if found is None:
        return None
    part = process_of(found.process)
    what = Portable(found.build.variant, found.build.knobs, found.team.threads if found.team else 0, *part)
    return Guess(what, found, (), math.inf)


def _modelled_choice(here: Here, problem: Problem) -> Choice | None:
    cost = costs.cheapest(here.machine, here.spec, problem)
    default = _default(here, problem)
    return None if cost is None or default is None else default._replace(team=cost.team)


def _default(here: Here, problem: Problem) -> Choice | None:
    try:
        variants = for_machine(here.variants, here.machine)
        return default_choice(here.machine, here.spec, variants, problem, here.options)
    except AdvisorError:
        return None


def _section(ground: _Ground, told: dict[int, Told], won: Sequence[int]) -> Section:
    """Rows between the n, borders at their geometric means; `won`: n at which this process part is the best."""
    sizes = sorted(told)
    first = told[sizes[0]]
    origins = [_origin(ground, one) for one in told.values()]
    origin = {
        **{name: _agreed([one[name] for one in origins]) for name in ("rung", "validated_regret")},
        "machines": tuple(dict.fromkeys(name for one in told.values() for name in one.guess.machines)),
        "why": words(first),
        "models": ground.ladder.models,
        "ladder": tuple(_rung(*one) for one in ground.ladder.ways if one[1].counted),
    }
    default = _default(ground.here, _problem(ground.here.spec, ground.group, sizes[0])) or first.choice
    dtype, regime, shape = ground.group
    process, rows = first.choice.process, _rows(ground, told)
    basis = "MODELLED" if all(one.way.rung == "model" for one in told.values()) else "TRANSFERRED"
    made = Section(dtype, shape, regime, process, tuple(sizes), rows, default, (), None, _now())
    return made._replace(wins=pairs({"latency": tuple(won)}), extra=pairs({"basis": basis, "origin": origin}))


def _origin(ground: _Ground, told: Told) -> dict[str, object]:
    """Where one answer comes from. The check was of answers under any process part, and claims nothing of others."""
    regret = ground.ladder.claimed(told.way) if told.how == FREE else None
    return {"rung": told.way.rung, "machines": told.guess.machines, "validated_regret": _rounded(regret)}


def _agreed(values: Sequence[object]) -> object:
    """The value that all have, else None."""
    return values[0] if all(value == values[0] for value in values) else None


def _rung(way: Way, checked: Checked) -> dict[str, object]:
    """A way and how far it was off, as the table has them."""
    known = len(checked.known)
    return {"rung": way.rung, "rule": way.rule, "regret": _rounded(checked.regret), "checked": known}


def _rounded(regret: float | None) -> float | None:
    return None if regret is None else round(regret, 4)


def _rows(ground: _Ground, told: dict[int, Told]) -> tuple[Row, ...]:
    sizes = sorted(told)
    made = made_at(ground.here.variants, _problem(ground.here.spec, ground.group, sizes[0]))
    picks = [(n, told[n].choice) for n in sizes]
    borders = [
        within(math.isqrt(left[0] * right[0]) + 1, left, right, made) - 1 if left[0] < right[0] - 1 else left[0]
        for left, right in pairwise(picks)
    ]
    lows, highs = [sizes[0], *(border + 1 for border in borders)], [*borders, sizes[-1]]
    rows: list[Row] = []
    for n, low, high in zip(sizes, lows, highs, strict=True):
        basis = "MODELLED" if told[n].way.rung == "model" else "TRANSFERRED"
        extra = {"basis": basis, "origin": _origin(ground, told[n]), "why": words(told[n])}
        row = Row(low, high, told[n].choice, (), DEPENDS, pairs(extra))
        same = bool(rows) and (rows[-1].choice, rows[-1].extra) == (row.choice, row.extra)
        rows[-1:] = [rows[-1]._replace(high=high)] if same else [*rows[-1:], row]
    return tuple(rows)


def words(told: Told) -> str:
    """How an answer was come by, in words."""
    way, guess = told.way, told.guess
    where = ", ".join(guess.machines)
    by = {
        "share": "the same share of the CPUs",
        "count": "the same number of threads",
        "caches": "the same threads for each last-level cache",
    }.get(way.rule, "")
    best = "best with this process part" if told.how == HERE else "best"
    threads = f", {by}" if told.choice.team else ""  # a choice for a GPU has none
    said = {
        "nearest": f"what the nearest machine, {where}, measured to be {best}{threads}",
        "common": f"what is {best} on {where} together{threads}",
        "learned": f"what a model learned from {where} expects to be {best}",
        "model": "traffic, arithmetic and fork-join alone, with the default build",
    }[way.rung]
    return f"{said}{_beside(told)}"


def _beside(told: Told) -> str:
    """How the answer stands to what is best under any process part, in words."""
    if told.how == LENT:
        return "; it is best with another process part, and nobody measured it with this one"
    off = 1.0 if told.how != HERE or told.guess.off is None else math.exp(told.guess.off)
    return f"; {off:.2f} times as long there as the best of any process part" if off >= 1.005 else ""


# --- the cost model alone ---


def _modelled(here: Here, problems: Sequence[Problem]) -> list[Section]:
    """A section of a shape that nobody measured; none without a signature."""
    told: dict[int, Told] = {}
    for problem in problems:
        choice = _modelled_choice(here, problem)
        if choice is not None:
            guess = Guess(Portable(choice.build.variant, (), 0), choice, (), math.inf)
            told[problem.n] = Told(Way("model"), guess, choice)
    if not told:
        return []
    group: Group = (problems[0].dtype, problems[0].regime, problems[0].shape)
    return [_section(_Ground(here, (), group, Ladder(((Way("model"), Checked((), ())),), 0), None), told, sorted(told))]
