"""What GPU variants are made with here: CuPy's NVRTC, Triton, PyTorch; nothing of them is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.errors import BadInput
from advisor.installed import installed
from advisor.kernels.compilers import Compiler

PACKAGES = {"cuda": "cupy", "triton": "triton", "torch": "torch"}
"""Language -> the package that makes its variants run."""

NEEDS = {"cuda": (), "triton": ("torch",), "torch": ()}
"""Language -> further languages whose tools it cannot do without; all need CuPy, which holds the memory."""

RUNTIME = "cuda"

CPU_ONLY = "+cpu"
"""How the version of a build of PyTorch without CUDA ends. Source: PEP 440, local versions; pytorch.org's wheels."""


def gpu_tools() -> tuple[Compiler, ...]:
    """The tools installed here that reach a GPU, CuPy's first; none without CuPy."""
    found = reaching({package: installed(package) for package in PACKAGES.values()})
    return tuple(Compiler(f"{PACKAGES[one]}-{short(text)}", "", text, one, RUNTIME) for one, text in found.items())


def reaching(versions: Mapping[str, object]) -> dict[str, str]:
    """Language -> version of its package, of those that reach a GPU together; none without CuPy.

    Args:
        versions: package -> version, None or left out where it is not there.
    """
    told = {language: str(versions.get(package) or "") for language, package in PACKAGES.items()}
    found = {language: text for language, text in told.items() if text and not text.endswith(CPU_ONLY)}
    usable = [language for language in found if all(other in found for other in NEEDS[language])]
    return {language: found[language] for language in usable} if "cuda" in found else {}


def left_out() -> str:
    """Why PyTorch, and what needs it, is no tool for a GPU though it is installed, and the remedy; empty otherwise."""
    version = installed(PACKAGES["torch"]) or ""
    if not version.endswith(CPU_ONLY):
        return ""
    return (
        f"PyTorch {version} is a build for CPUs alone, so no variants of PyTorch or Triton run on a GPU; "
        "install its build for CUDA"
    )


def needed_tools() -> tuple[Compiler, ...]:
    """The same.

    Raises:
        BadInput: there are none.
    """
    found = gpu_tools()
    if not found:
        raise BadInput(
            "work on a GPU needs CuPy, which compiles variants and holds the memory",
            got="none",
            next_step="pip install cupy-cuda13x, or cupy-cuda12x for a driver of CUDA 12",
        )
    return found


def short(text: str) -> str:
    """Major and minor number of a version."""
    found = re.match(r"\d+(\.\d+)?", text)
    return found[0] if found else "unknown"
