"""Libraries as tools: what a variant in Python calls. Nothing is imported here but their names."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence

from advisor.errors import UnknownName
from advisor.installed import LIBRARIES, library_of
from advisor.kernels.compilers import Compiler, compilers, find_compiler

FLAGS = "none"
"""The flag set of a library call: nothing of it is compiled here."""

LANGUAGE = "python"


def libraries() -> tuple[Compiler, ...]:
    """The libraries installed here, as tools of the language "python".

    The frame that pins a library's threads must be built by a compiler with the library's own OpenMP runtime, libgomp:
    its path is the tool's path, and without one there are no tools. A library that turns out to run on another runtime
    is refused when it is loaded.
    """
    frame = next((one for one in compilers() if one.runtime == "libgomp"), None)
    if frame is None:
        return ()
    found = ((name, version(name)) for name in LIBRARIES)
    return tuple(
        Compiler(f"{name}-{_short(text)}", frame.path, f"{name} {text}\n{frame.version}", LANGUAGE, frame.runtime)
        for name, text in found
        if text
    )


def version(library: str) -> str | None:
    """The version of an installed library, None where it is not there."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _short(text: str) -> str:
    """Major and minor number of a version: 2.13 of 2.13.0+cpu."""
    found = re.match(r"\d+(\.\d+)?", text)
    return found[0] if found else "unknown"


def tools() -> tuple[Compiler, ...]:
    """Everything that variants are made with: compilers, then libraries."""
    return (*compilers(), *libraries())


def flag_sets_of(tool_language: str, flag_sets: Sequence[str]) -> tuple[str, ...]:
    """The flag sets that make sense for a language, of those at hand."""
    return (FLAGS,) if tool_language == LANGUAGE else tuple(flag_sets)


def find_tool(name: str) -> Compiler:
    """The compiler or library of that name.

    Raises:
        UnknownName: it is not on this machine, or cannot be used here.
    """
    if not library_of(name):
        return find_compiler(name)
    found = {tool.name: tool for tool in libraries()}
    if name not in found:
        raise UnknownName(
            "this library is not here, or there is no gcc to build its frame with",
            got=name,
            allowed=", ".join(found) or "none found",
            next_step="install it, for example with `pip install onf-advisor[torch]`",
        )
    return found[name]
