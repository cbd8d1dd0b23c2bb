"""Which cells are measured, and what they are expected to cost. No timing here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, is_valid, knob_sets, missing_isa
from advisor.records import Build, Choice, Machine, Problem, Process, Team
from advisor.search.space import OVERSUBSCRIBE, SpaceOptions, cpu_budget, processes
from advisor.search.space import teams as all_teams
from advisor.topology.placement import UNPINNED

MORE_GROWTH = 0.15
"""Added to an exponent that was seen: a mapping that fills a device only now grows faster from there on."""

LEAST_ROUNDS, MOST_ROUNDS = 5, 9
"""Interleaved rounds of a group. Fewer than five give no interval worth printing; nine are the least that ranks."""


class Pace(NamedTuple):
    """What measuring is expected to cost, roughly.

    Attributes:
        look_rounds: a cell's first round takes as long as this many further ones: it is checked, and warmed up.
        round_calls: calls of a cell in a round.
        flops_per_ns: assumed of a thread, or of a device, where nothing was measured yet: what plain code reaches, so
            that large first sizes are not begun in vain.
        reference_flops_per_ns: speed at which inputs and the float64 reference of a problem are made; once a problem.
        ask_s: a cell's turn in a round without its calls: messages, pinning, comparing outputs; until it was seen.
        least_share: of the cells of a race, under which it is not begun: a few fast ones alone compare with nothing.
        least_growth: exponent of time in flops that is expected at least; 1: in proportion, whatever was seen.
    """

    look_rounds: int
    round_calls: int
    flops_per_ns: float
    reference_flops_per_ns: float
    ask_s: float = 0.01
    least_share: float = 0.5
    least_growth: float = 1.0


class Known(NamedTuple):
    """The last figure of a cell: its problem, ns of a call, and the exponent by which it is expected to grow with the
    flops."""

    problem: Problem
    ns: float
    growth: float = 1.0


ON_CPUS = Pace(2, 2, 1.0, 2.0)
"""Calls of a round with a warm-up; edge problems are checked too."""


class Cell(NamedTuple):
    """One variant with one team. `form`: in which of its forms, empty for that of its defaults."""

    variant: Variant
    choice: Choice
    form: str = ""

    @property
    def name(self) -> str:
        """Its variant's, and its form."""
        return f"{self.variant.name} {self.form}".rstrip()

    @property
    def threads(self) -> int:
        """Threads of its team."""
        return self.choice.team.threads if self.choice.team else 0

    @property
    def pinned(self) -> bool:
        """Whether each thread is bound to a CPU."""
        return self.choice.team is not None and self.choice.team.placement != UNPINNED

    @property
    def label(self) -> str:
        """Its name, and its threads where it has a team."""
        team = f" {self.threads}T{'' if self.pinned else ' free'}" if self.choice.team else ""
        return f"{self.name}{team}"


def usable(variants: Sequence[Variant], machine: Machine) -> tuple[Variant, ...]:
    """The C variants that link no library and whose instruction sets are here."""
    return tuple(v for v in variants if v.made_with == "c" and not missing_isa(v, machine))


def cell(variant: Variant, problem: Problem, team: Team, options: SpaceOptions) -> Cell | None:
    """The variant at its default knobs, or at its first valid ones; None where it does not exist for the problem."""
    knobs = [variant.defaults] if is_valid(variant, problem, variant.defaults) else knob_sets(variant, problem)
    tool = next((tool for tool in options.compilers if tool.language == variant.language), None)
    if not knobs or tool is None:
        return None
    flags = "native" if "native" in options.flags else options.flags[0]
    build = Build(variant.name, variant.source_hash, knobs[0], tool.name, flags)
    process: Process = processes(tool.runtime, options.memory_policies)[0]
    return Cell(variant, Choice(build, team, process))


def teams_of(machine: Machine, counts: Sequence[int]) -> tuple[Team, ...]:
    """Where so many threads run: the simplest placement of the tuner's; not pinned where there are fewer CPUs."""
    known = {team.threads: team for team in reversed(all_teams(machine))}
    most = len(machine.allowed_cpus)
    return tuple(
        Team(threads, UNPINNED) if threads > most else known.get(threads, Team(threads, "")) for threads in counts
    )


def cells(
    machine: Machine, variants: Sequence[Variant], problem: Problem, teams: Sequence[Team], options: SpaceOptions
) -> tuple[Cell, ...]:
    """Every usable variant with every team."""
    found = [cell(variant, problem, team, options) for variant in usable(variants, machine) for team in teams]
    return tuple(one for one in found if one is not None)


def crowded(machine: Machine, variants: Sequence[Variant], problem: Problem, options: SpaceOptions) -> tuple[Cell, ...]:
    """The first variant in rank with as many threads as CPUs and with twice as many, both not pinned.

    Threads that outnumber the CPUs cannot be pinned one by one, so neither side of the comparison is.
    """
    most = cpu_budget(machine)
    for variant in usable(variants, machine):
        crowd = [Team(threads, UNPINNED) for threads in (most, OVERSUBSCRIBE * most)]
        found = [cell(variant, problem, team, options) for team in crowd]
        if all(found):
            return tuple(one for one in found if one is not None)
    return ()


# --- cost ---


def expected_ns(
    spec: KernelSpec,
    problem: Problem,
    one: Cell,
    before: Mapping[tuple[str, int], Known],
    pace: Pace = ON_CPUS,
) -> float:
    """Time of a call: the last size's, grown with the flops; from the flops alone where there is none.

    Args:
        spec: the kernel's spec.
        problem: what is to be measured.
        one: variant and team.
        before: (name, threads) -> the last figure.
        pace: for its speed.
    """
    known = before.get((one.name, one.threads))
    if known is not None:
        return float(known.ns * (spec.flops(problem) / spec.flops(known.problem)) ** known.growth)
    return spec.flops(problem) / pace.flops_per_ns / max(1, one.threads)


def learned(spec: KernelSpec, problem: Problem, ns: float, earlier: Known | None, pace: Pace = ON_CPUS) -> Known:
    """A new last figure: it is expected to grow as it did since the earlier one and a little more, at most with the
    flops."""
    if earlier is None or pace.least_growth >= 1 or spec.flops(problem) <= spec.flops(earlier.problem):
        return Known(problem, ns)
    seen = math.log(ns / earlier.ns) / math.log(spec.flops(problem) / spec.flops(earlier.problem))
    return Known(problem, ns, min(1.0, max(pace.least_growth, seen + MORE_GROWTH)))


def turns(rounds: int, pace: Pace = ON_CPUS) -> int:
    """What so many rounds of a cell cost, in further rounds."""
    return rounds - 1 + pace.look_rounds


def cell_s(expected: float, ask_s: float = ON_CPUS.ask_s, rounds: int = LEAST_ROUNDS, pace: Pace = ON_CPUS) -> float:
    """Seconds that a cell takes with so many rounds, its call expected to take so many ns."""
    return turns(rounds, pace) * (ask_s + pace.round_calls * expected * 1e-9)


def fitting(costs_s: Mapping[Cell, float], seconds: float, least_share: float = 0.5) -> tuple[Cell, ...]:
    """The cheapest cells that fit into so many seconds together, in their own order; none under a share of them."""
    kept, spent = set(), 0.0
    for one, cost in sorted(costs_s.items(), key=lambda item: item[1]):
        spent += cost
        if spent > seconds:
            break
        kept.add(one)
    return tuple(one for one in costs_s if one in kept) if len(kept) >= least_share * len(costs_s) else ()
