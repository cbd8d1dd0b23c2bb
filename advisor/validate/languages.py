"""C beside Fortran: each variant in Fortran races the one in C that it mirrors, compilers of one OpenMP runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from advisor.errors import AdvisorError
from advisor.kernels import fortran
from advisor.kernels.available import NEEDS
from advisor.kernels.compilers import Compiler
from advisor.kernels.fortran import fortran_compilers
from advisor.kernels.variant import Variant, is_valid, missing_isa
from advisor.records import Machine, Pairs, Problem, Team
from advisor.search.space import SpaceOptions, Toolchain, cpu_budget
from advisor.validate.plan import Cell, cell, teams_of
from advisor.validate.run import Job


class Pair(NamedTuple):
    """A compiler of each language, the Fortran compiler behind which the C compiler's frame stands."""

    c: Compiler
    fortran: Compiler


def compiler_pairs() -> tuple[Pair, ...]:
    """Every Fortran compiler here with the C compiler of its OpenMP runtime, the preferred ones first."""
    return tuple(Pair(fortran.frame_compiler(one), one) for one in fortran_compilers())


def versions(pairs: Sequence[Pair]) -> Pairs:
    """Tool -> the first line of its version, of all that are in these pairs."""
    return tuple({one.name: one.version.splitlines()[0] for pair in pairs for one in pair}.items())


def twins(variants: Sequence[Variant], problem: Problem, machine: Machine) -> tuple[tuple[Variant, Variant], ...]:
    """(in C, in Fortran) of one ONF each, as far as both exist for a problem and can run here."""
    able = {one.name: one for one in variants if one.language == "c" and not missing_isa(one, machine)}
    able = {name: one for name, one in able.items() if is_valid(one, problem, one.defaults)}
    found = []
    for own in variants:
        twin = next((able[name] for name in own.mirrors if name in able), None)
        if twin is not None and is_valid(own, problem, own.defaults):
            found.append((twin, own))
    return tuple(found)


def language_cells(
    machine: Machine, job: Job, problem: Problem, pairs: Sequence[Pair], options: SpaceOptions, teams: Sequence[Team]
) -> tuple[Cell, ...]:
    """Both of each twin with each pair of compilers and each team; a C compiler of two pairs is not asked twice."""
    found: dict[Cell, None] = {}
    for pair in pairs:
        own = options._replace(compilers=tuple(Toolchain(one.name, one.runtime, one.language) for one in pair))
        for both in twins(job.variants, problem, machine):
            wanted = [cell(variant, problem, team, own) for variant in both for team in teams]
            found |= dict.fromkeys(one for one in wanted if one is not None)
    return tuple(found)


def ends(machine: Machine) -> tuple[Team, ...]:
    """One thread, and all."""
    return teams_of(machine, sorted({1, cpu_budget(machine)}))


def lacking(jobs: Sequence[Job], pairs: Sequence[Pair]) -> str:
    """Why these kernels cannot be compared, empty where they can."""
    if pairs:
        return ""
    what, step = NEEDS["fortran"]
    return f"C over Fortran of {', '.join(job.kernel for job in jobs)}: there is no {what} with OpenMP ({step})"


def pairs_here() -> tuple[Pair, ...]:
    """The pairs, none where compilers cannot be tried."""
    try:
        return compiler_pairs()
    except (AdvisorError, OSError):
        return ()
