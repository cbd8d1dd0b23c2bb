"""Libraries as tools: what a variant in Python calls. Nothing is imported here but their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.errors import UnknownName
from advisor.installed import LIBRARIES, LINKED, installed, library_of
from advisor.kernels import openblas
from advisor.kernels.compilers import Compiler, compilers, find_compiler
from advisor.kernels.fortran import FAMILIES, find_fortran, fortran_compilers
from advisor.kernels.gomp import RUNTIME

FLAGS = "none"
"""The flag set of a library call: nothing of it is compiled here."""

LANGUAGE = "python"


def libraries() -> tuple[Compiler, ...]:
    """The libraries installed here, as tools of the language "python". They need no compiler.

    A library that turns out to run on another runtime than libgomp is refused when it is loaded.
    """
    found = ((name, installed(name)) for name in LIBRARIES)
    return tuple(
        Compiler(f"{name}-{_short(text)}", "", f"{name} {text}", LANGUAGE, RUNTIME) for name, text in found if text
    )


def _short(text: str) -> str:
    """Major and minor number of a version: 2.13 of 2.13.0+cpu."""
    found = re.match(r"\d+(\.\d+)?", text)
    return found[0] if found else "unknown"


def tools() -> tuple[Compiler, ...]:
    """Everything that variants are made with: compilers, then libraries that are linked, then those that are called."""
    return (*compilers(), *fortran_compilers(), *openblas.tools(), *libraries())


def flag_sets_of(tool_language: str, flag_sets: Sequence[str]) -> tuple[str, ...]:
    """The flag sets that make sense for a language, of those at hand."""
    return (FLAGS,) if tool_language == LANGUAGE else tuple(flag_sets)


def find_tool(name: str) -> Compiler:
    """The compiler or library of that name.

    Raises:
        UnknownName: it is not on this machine.
    """
    if name.partition("-")[0] in FAMILIES:
        return find_fortran(name)
    if name.partition("-")[0] in LINKED:
        return openblas.find_tool(name)
    if not library_of(name):
        return find_compiler(name)
    found = {tool.name: tool for tool in libraries()}
    if name not in found:
        raise UnknownName(
            "this library is not here",
            got=name,
            allowed=", ".join(found) or "none found",
            next_step="install it, for example with `pip install onf-advisor[torch]`",
        )
    return found[name]
