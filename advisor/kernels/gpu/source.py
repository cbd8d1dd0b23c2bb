"""CUDA source as the compiler gets it: one text with its own headers pasted in, and the options with all macros.

One text, so that CuPy's cache of compiled modules, which is keyed by text and options, sees an edit to a header.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from advisor.errors import BuildError
from advisor.kernels.build import REALS
from advisor.kernels.header import Variant
from advisor.kernels.variant import macro_values
from advisor.records import Pairs, Problem
from advisor.sources import parts, short_hash

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[^\n]*$', re.M)

STANDARD = "--std=c++17"


def text(path: str, digest: str) -> str:
    """The source with the headers beside it in the place of their includes, each once.

    Args:
        path: of the .cu file.
        digest: the hash that was read with its header.

    Raises:
        BuildError: the file or one of its headers changed since then.
    """
    found = {os.path.basename(name): content.decode() for name, content in parts(path).items()}
    if short_hash(b"".join(content.encode() for content in found.values())) != digest:
        raise BuildError("the source changed since it was read", got=path, next_step="start again")
    pasted: set[str] = set()

    def paste(name: str) -> str:
        if name in pasted or name not in found:
            return ""
        pasted.add(name)
        return _INCLUDE.sub(lambda match: paste(match[1]), found[name])

    return paste(os.path.basename(path))


def as_text(source: str, words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The source with its macros written at its head, and the options that are left.

    CuPy calls NVRTC once for each set of options that it has not seen in a process, also where the program lies in its
    cache; the options of all programs are equal then.
    """
    macros = [word.removeprefix("-D").partition("=") for word in words if word.startswith("-D")]
    head = "".join(f"#define {name} {value}\n" for name, _, value in macros)
    return f"{head}#line 1\n{source}", tuple(word for word in words if not word.startswith("-D"))


def options(variant: Variant, problem: Problem, knobs: Pairs) -> tuple[str, ...]:
    """The compiler's options: the standard, the storage type, every macro of the header."""
    macros = (("ADV_DTYPE", REALS[problem.dtype].code), *macro_values(variant, problem, knobs))
    return (STANDARD, *(f"-D{name}={value}" for name, value in macros))
