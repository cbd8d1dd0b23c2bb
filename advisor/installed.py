"""Which version of a Python library lies here, told by the name of its dist-info folder. Hot path: no import of it."""

from __future__ import annotations

import os
import sys

LIBRARIES = ("torch",)
"""Libraries whose calls are variants. A tool of that kind is named after its library: torch-2.13."""

ABSENT = "not installed"


def library_of(tool: str) -> str:
    """The library that a tool's name means, empty for a compiler: `torch` for torch-2.13."""
    name = tool.partition("-")[0]
    return name if name in LIBRARIES else ""


def installed(library: str) -> str | None:
    """The version of the first such library on sys.path, as importlib.metadata gives it; None where none is found.

    Args:
        library: its name in small letters, as in LIBRARIES.
    """
    start, end = f"{library}-", ".dist-info"
    for folder in sys.path:
        try:
            found = [name for name in os.listdir(folder or ".") if name.startswith(start) and name.endswith(end)]
        except OSError:
            continue
        if found:
            return min(found)[len(start) : -len(end)]
    return None
