"""Which version of a library lies here, told by its dist-info folder or its file. Hot path: no import of it."""

from __future__ import annotations

import os
import sys

LIBRARIES = ("torch",)
"""Libraries whose calls are variants on a CPU. A tool of that kind is named after its library: torch-2.13."""

DEVICE_TOOLS = ("cupy", "triton", "torch")
"""What variants of a GPU are made with; their tools are named likewise: cupy-14.2."""

LINKED = ("openblas",)
"""Libraries in C that variants link; a tool is named likewise: openblas-0.3. See linked.py."""

DISTRIBUTIONS = {"cupy": ("cupy_cuda13x", "cupy_cuda12x", "cupy")}
"""Library -> the distributions that bring it, the preferred one first, where they have other names."""

ABSENT = "not installed"


def library_of(tool: str) -> str:
    """The library that a CPU tool's name means, empty for a compiler: `torch` for torch-2.13."""
    name = tool.partition("-")[0]
    return name if name in LIBRARIES else ""


def package_of(tool: str) -> str:
    """The package that a tool's name means, on a CPU or a GPU; empty for a compiler: `cupy` for cupy-14.2."""
    name = tool.partition("-")[0]
    return name if name in (*LIBRARIES, *LINKED, *DEVICE_TOOLS) else ""


def installed(library: str) -> str | None:
    """The version of the first such library on sys.path, as importlib.metadata gives it; None where none is found.

    Of one that is linked, version and build of the file that counts.

    Args:
        library: its name in small letters, as in LIBRARIES, LINKED or DEVICE_TOOLS.
    """
    if library in LINKED:
        from advisor import linked

        return linked.version(library)
    return next(filter(None, map(_found, DISTRIBUTIONS.get(library, (library,)))), None)


def nvrtc() -> str | None:
    """The major version of CUDA whose NVRTC CuPy compiles with: 13 for cupy_cuda13x. None where the distribution does
    not tell, as of a CuPy that was built from its source, and without CuPy.

    CuPy's own version says nothing of it: 14.2.0 is there for CUDA 12 and for CUDA 13.
    """
    there = next(filter(_found, DISTRIBUTIONS["cupy"]), "")
    return there.removeprefix("cupy_cuda").removesuffix("x") if there.startswith("cupy_cuda") else None


def _found(distribution: str) -> str | None:
    start, end = f"{distribution}-", ".dist-info"
    for folder in sys.path:
        try:
            found = [name for name in os.listdir(folder or ".") if name.startswith(start) and name.endswith(end)]
        except OSError:
            continue
        if found:
            return min(found)[len(start) : -len(end)]
    return None


COMPILERS = ("gcc", "clang", "gfortran", "flang")
"""Families of compilers, those for C first; a tool of one is named after it and its major version: gcc-12."""


OTHER_NAMES = {"flang": ("flang-new",)}
"""Family -> how its programs are called too: flang until LLVM 20."""


def compiler_is_absent(tool: str) -> bool:
    """Whether no program on PATH, nor $CC, can be the compiler of this name. Nothing is started: one that is there may
    still be of another version, or broken."""
    family = tool.partition("-")[0]
    if family not in COMPILERS:
        return False
    own = ("cc", *os.environ.get("CC", "").split()[:1]) if family in COMPILERS[:2] else ()
    others = [name.replace(family, other, 1) for other in OTHER_NAMES.get(family, ()) for name in (tool, family)]
    names, folders = (tool, family, *others, *own), os.get_exec_path()
    return not any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders for name in names)
