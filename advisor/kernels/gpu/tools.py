"""What GPU variants are made with here: CuPy's NVRTC, Triton, PyTorch; nothing of them is imported."""

from __future__ import annotations

import importlib.metadata
import re

from advisor.kernels.compilers import Compiler

DISTRIBUTIONS = {
    "cuda": ("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy")),
    "triton": ("triton", ("triton",)),
    "torch": ("torch", ("torch",)),
}
"""Language -> the tool's name and the distributions that bring it, the preferred one first."""

NEEDS = {"cuda": (), "triton": ("torch",), "torch": ()}
"""Language -> further languages whose tools it cannot do without; all need CuPy, which holds the memory."""

RUNTIME = "cuda"


def _version(language: str) -> str | None:
    for name in DISTRIBUTIONS[language][1]:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def gpu_tools() -> tuple[Compiler, ...]:
    """The tools installed here, CuPy's first; none without CuPy."""
    found = {language: text for language in DISTRIBUTIONS if (text := _version(language))}
    if "cuda" not in found:
        return ()
    usable = [language for language in found if all(other in found for other in NEEDS[language])]
    return tuple(
        Compiler(f"{DISTRIBUTIONS[one][0]}-{short(found[one])}", "", found[one], one, RUNTIME) for one in usable
    )


def short(text: str) -> str:
    """Major and minor number of a version."""
    found = re.match(r"\d+(\.\d+)?", text)
    return found[0] if found else "unknown"
