"""Which variants cannot be made on this machine, for want of what, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from advisor.errors import AdvisorError, BadInput
from advisor.kernels import openblas
from advisor.kernels.compilers import Compiler, compilers
from advisor.kernels.fortran import without_frame
from advisor.kernels.libraries import LANGUAGE, tools

if TYPE_CHECKING:
    from advisor.kernels.variant import Variant

NEEDS = {
    "c": ("C compiler with OpenMP", "Debian: apt-get install gcc, or clang libomp-dev"),
    "fortran": ("gfortran", "Debian: apt-get install gfortran"),
    openblas.LANGUAGE: ("OpenBLAS in its OpenMP build", openblas.REMEDY),
    LANGUAGE: ("PyTorch", "pip install onf-advisor[torch]"),
}
"""Language, and library that is linked -> what makes its variants, and how that comes here."""

FRAMES = {"libgomp": "Debian: apt-get install gcc", "libomp": "Debian: apt-get install clang libomp-dev"}
"""OpenMP runtime of a Fortran compiler -> how a C compiler with the same comes here."""


class Unavailable(NamedTuple):
    """One variant that cannot be made here."""

    kernel: str
    variant: str
    language: str
    reason: str
    next_step: str


def unavailable() -> tuple[Unavailable, ...]:
    """The variants for CPUs whose language has no tool here, by kernel and name; their sources are read only then."""
    lacking = _lacking()
    if not lacking:
        return ()
    from advisor.kernels import registry
    from advisor.kernels.variant import variants

    found = []
    for kernel in registry.kernels():
        with contextlib.suppress(AdvisorError):  # a broken source is for who tunes that kernel
            for one in variants(kernel):
                if one.made_with in lacking:
                    found.append(Unavailable(kernel, one.name, one.language, *lacking[one.made_with]))
    return tuple(found)


def _lacking() -> dict[str, tuple[str, str]]:
    """Language -> (reason, next step), for those without a tool."""
    try:
        found, needs = {tool.language for tool in tools()}, _needs()
    except (AdvisorError, OSError) as error:
        return dict.fromkeys(NEEDS, (f"compilers cannot be tried ({error})", "see `advisor doctor`"))
    lacking = {name: (f"there is no {what}", step) for name, (what, step) in needs.items() if name not in found}
    if openblas.LANGUAGE in lacking:
        blas = openblas.find()
        lacking[openblas.LANGUAGE] = (f"{lacking[openblas.LANGUAGE][0]}: {blas.reason}", blas.remedy)
    return lacking


def _needs() -> dict[str, tuple[str, str]]:
    """NEEDS; of Fortran, where its compiler is here, the C compiler that it lacks."""
    bare = next(iter(without_frame()), None)
    if bare is None:
        return NEEDS
    return {**NEEDS, "fortran": (f"C compiler with {bare.runtime} for the frame of {bare.name}", FRAMES[bare.runtime])}


def lines(found: Iterable[Unavailable]) -> list[str]:
    """For people: a line a reason, then one a kernel."""
    reasons: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in found:
        reasons.setdefault((one.reason, one.next_step), {}).setdefault(one.kernel, []).append(one.variant)
    said = []
    for (reason, step), kernels in reasons.items():
        said.append(f"not available here, since {reason} ({step}):")
        said += [f"  {kernel}: {', '.join(names)}" for kernel, names in kernels.items()]
    return said


def check(variants: Sequence[Variant], languages: Collection[str]) -> None:
    """Refuse to begin where not one variant can be made.

    Args:
        variants: of all kernels that are asked for.
        languages: those of the tools at hand.

    Raises:
        BadInput: with what has to come here.
    """
    spoken = list(dict.fromkeys(one.made_with for one in variants))
    if not spoken or set(spoken) & set(languages):
        return
    lacking = [f"{what} ({step})" for language, (what, step) in _needs().items() if language in spoken]
    raise BadInput(
        f"{' and '.join(dict.fromkeys(one.kernel for one in variants))} must have a variant that can be made here",
        got=f"variants in {', '.join(spoken)}, tools for {', '.join(sorted(languages)) or 'nothing'}",
        next_step=f"{' or '.join(lacking) or 'what they are made with'} is missing; see `advisor doctor`",
    )


def c_compiler() -> Compiler:
    """The preferred C compiler, for what no library can stand in for.

    Raises:
        BadInput: there is none.
    """
    found = next(iter(compilers()), None)
    if found is None:
        what, step = NEEDS["c"]
        raise BadInput(f"this needs a {what}", got="none", next_step=f"{step}; see `advisor doctor`")
    return found
