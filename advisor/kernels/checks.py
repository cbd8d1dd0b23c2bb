"""Which checks `advisor verify` makes of a variant: all that can differ at least once, not every combination of it.

What is compiled apart is a kind: one dtype and fixed shape. On every problem of every kind the plain knobs (the
defaults, or the first valid ones where those are not) run with the first tool and flag set on every team size, and with
the least and the largest value of each run knob on one. Every other combination of build knobs, and every other tool
and flag set, is dealt one kind: the next in turn, so that all kinds get their share. Inputs that are not normal run on
one team size; which, is dealt likewise.

All times all would be hours: a kernel has some 60 edge problems in 10 kinds, two draws, a dozen combinations of build
knobs, six tools with flags and four team sizes, and a build takes about a second. Before a build is timed it passes the
edge problems in any case.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.errors import PlacementError
from advisor.kernels.compilers import Compiler, flag_sets
from advisor.kernels.libraries import flag_sets_of
from advisor.kernels.variant import Variant, for_machine, knob_sets, missing_isa
from advisor.records import Build, Choice, Machine, Pairs, Problem, Process, Team
from advisor.topology.placement import UNPINNED, evaluate

Kind = tuple[str, Pairs]
"""Dtype and fixed shape."""

Tool = tuple[Compiler, str]
"""A compiler or library with a flag set."""


class Deal(NamedTuple):
    """What is checked of one variant, and where.

    Attributes:
        variant: the variant.
        tools: all that it can be made with, the first one checked most.
        teams: team sizes, ascending.
        builds: combination of build knobs -> its kind.
        seconds: index of a further tool -> its kind.
        able: False where the machine lacks an instruction set; one check a problem says so.
    """

    variant: Variant
    tools: tuple[Tool, ...]
    teams: tuple[Team, ...]
    builds: dict[Pairs, Kind]
    seconds: dict[int, Kind]
    able: bool


def kind_of(problem: Problem) -> Kind:
    """What a problem is compiled for."""
    return problem.dtype, problem.shape


def deal(machine: Machine, variant: Variant, problems: Sequence[Problem], found: Sequence[Compiler]) -> Deal:
    """Deal a variant's builds and tools out to the kinds of the problems.

    Args:
        machine: where it runs.
        variant: the variant.
        problems: all that will be checked.
        found: compilers and libraries, the preferred ones first.
    """
    (variant,) = for_machine([variant], machine)  # values for other machines are never chosen on this one
    valid: dict[Pairs, dict[Kind, None]] = {}  # combination of build knobs -> where it exists
    for problem in problems:
        for knobs in knob_sets(variant, problem):
            valid.setdefault(_build_part(variant, knobs), {})[kind_of(problem)] = None
    everywhere = tuple(dict.fromkeys(kind for kinds in valid.values() for kind in kinds))
    own = [tool for tool in found if tool.language == variant.made_with]
    tools = tuple(itertools.product(own, flag_sets_of(variant.language, flag_sets(machine))))
    return Deal(
        variant=variant,
        tools=tools,
        teams=_teams(machine),
        builds={part: _turn(tuple(kinds), index) for index, (part, kinds) in enumerate(valid.items())},
        seconds={index: _turn(everywhere, index) for index in range(1, len(tools)) if everywhere},
        able=not missing_isa(variant, machine),
    )


def _turn(kinds: Sequence[Kind], index: int) -> Kind:
    """The kind whose turn it is: dtypes take turns, and within each its shapes."""
    dtypes = tuple(dict.fromkeys(dtype for dtype, _ in kinds))
    own = [kind for kind in kinds if kind[0] == dtypes[index % len(dtypes)]]
    return own[index // len(dtypes) % len(own)]


def choices_of(dealt: Deal, problem: Problem, draw: str = "normal") -> list[Choice]:
    """The choices that are checked on one problem and draw of inputs, teams of one size together.

    Changing the size of a team between calls takes longer than most checks.
    """
    found = list(_choices(dealt, problem))
    if draw != "normal":
        found = list(_one_team(found, problem.n))
    return sorted(found, key=lambda choice: (choice.build.compiler, choice.team.threads if choice.team else 0))


def _one_team(choices: Sequence[Choice], turn: int) -> Iterator[Choice]:
    """One team size of each build."""
    by_build: dict[Build, list[Choice]] = {}
    for choice in choices:
        by_build.setdefault(choice.build, []).append(choice)
    for index, same in enumerate(by_build.values()):
        yield same[(turn + index) % len(same)]


def _choices(dealt: Deal, problem: Problem) -> Iterator[Choice]:
    sets = knob_sets(dealt.variant, problem)
    if not sets or not dealt.tools:
        return
    plain = next((knobs for knobs in sets if knobs == dealt.variant.defaults), sets[0])
    if not dealt.able:
        yield _choice(dealt, dealt.tools[0], plain, dealt.teams[0])
        return
    for team in dealt.teams:
        yield _choice(dealt, dealt.tools[0], plain, team)
    teams = itertools.cycle(dealt.teams)
    for knobs in _others(dealt, problem, sets, plain):
        yield _choice(dealt, dealt.tools[0], knobs, next(teams))
    for index, tool in enumerate(dealt.tools):
        if dealt.seconds.get(index) == kind_of(problem):
            for team in dealt.teams:
                yield _choice(dealt, tool, plain, team)


def _others(dealt: Deal, problem: Problem, sets: Sequence[Pairs], plain: Pairs) -> Iterator[Pairs]:
    """Further knobs for the first tool: the plain build everywhere, the others where they were dealt."""
    variant = dealt.variant
    defaults = dict(variant.defaults)
    ends = {knob: {min(values), max(values), defaults[knob]} for knob, values in variant.run_knobs}
    for knobs in sets:
        part = _build_part(variant, knobs)
        here = part == _build_part(variant, plain) or dealt.builds[part] == kind_of(problem)
        if knobs != plain and here and all(dict(knobs)[knob] in values for knob, values in ends.items()):
            yield knobs


def _build_part(variant: Variant, knobs: Pairs) -> Pairs:
    names = {name for name, _ in variant.build_knobs}
    return tuple((name, value) for name, value in knobs if name in names)


def _choice(dealt: Deal, tool: Tool, knobs: Pairs, team: Team) -> Choice:
    compiler, flags = tool
    made = Build(dealt.variant.name, dealt.variant.source_hash, knobs, compiler.name, flags)
    return Choice(made, team, Process(compiler.runtime, "default", None, "default"))


def _teams(machine: Machine) -> tuple[Team, ...]:
    """1, 2 and 3 threads and as many as the mask has; unpinned where there are fewer CPUs than threads."""
    sizes = sorted({1, 2, 3, max(1, len(machine.allowed_cpus))})
    return tuple(Team(threads, _placement(machine, threads)) for threads in sizes)


def _placement(machine: Machine, threads: int) -> str:
    try:
        evaluate("", machine.array, machine.allowed_cpus, threads)
    except PlacementError:
        return UNPINNED
    return ""
