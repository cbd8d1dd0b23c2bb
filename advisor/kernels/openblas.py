"""OpenBLAS as a tool: a variant in C whose header names it is compiled against it and runs on the team of the frame.

Only a build on libgomp counts (linked.py finds it by its file); it is tried once, with a C compiler that links the same
runtime, and asked for its build by its own functions. What is in the way elsewhere is told with a remedy.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
from typing import NamedTuple

from advisor import linked
from advisor.errors import UnknownName
from advisor.kernels.compilers import CHECK_LIMIT_S, Compiler, compilers, flags, remember, remembered
from advisor.kernels.process import run
from advisor.linked import Shared
from advisor.paths import cache_dir

LIBRARY = "openblas"

LANGUAGE = f"c+{LIBRARY}"
"""What the tool makes: variants in C whose header names this library."""

REMEDY = "Debian: apt-get install libopenblas-openmp-dev"

OPENMP_BUILD = 2
"""What openblas_get_parallel says of a build on OpenMP; 1: threads of its own. Source: cblas.h, OPENBLAS_OPENMP."""

CORE = "OPENBLAS_CORETYPE"

_PROBE_C = """#include <cblas.h>
#include <string.h>
double advisor_product(void)
{
    double a[4] = {1, 2, 3, 4}, c[4];
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2);
    return c[1];
}
int advisor_parallel(void) { return openblas_get_parallel(); }
const char *advisor_config(void) { return openblas_get_config(); }
const char *advisor_core(void) { return openblas_get_corename(); }
"""
_PROBE_PY = f"""import ctypes, json, os, sys
if sys.argv[2] == "own":
    os.environ.pop("{CORE}", None)
lib = ctypes.CDLL(sys.argv[1])
lib.advisor_product.restype = ctypes.c_double
lib.advisor_config.restype = lib.advisor_core.restype = ctypes.c_char_p
said = [one().decode() for one in (lib.advisor_config, lib.advisor_core)]
print(json.dumps([lib.advisor_product(), lib.advisor_parallel(), *said]))
"""


class Found(NamedTuple):
    """What looking for it came to. `reason` and `remedy` are empty where it is a tool."""

    tool: Compiler | None
    reason: str = ""
    remedy: str = ""


class Said(NamedTuple):
    """What a build says of itself: how it is parallel, its configuration, the core that it takes this CPU for."""

    parallel: int
    config: str
    core: str


def find() -> Found:
    """OpenBLAS as a tool, or what is in the way."""
    library = linked.openblas()
    if library is None:
        return _refused()
    if not linked.headers(library):
        return Found(None, f"{_base(library)} is here without its cblas.h", REMEDY)
    compiler = next((one for one in compilers() if one.runtime == linked.RUNTIME), None)
    if compiler is None:
        return Found(
            None, f"no C compiler that links {linked.RUNTIME}, as {_base(library)} does", "Debian: apt-get install gcc"
        )
    return _with_another(_found(library, compiler, cache_dir()), library)


def _with_another(found: Found, library: Shared) -> Found:
    """What is in the way of one build, and where another is that may do."""
    if found.tool is not None:
        return found
    others = (one for one in linked.candidates() if linked.counts(one) and linked.headers(one))
    other = next((one for one in others if one.path != library.path), None)
    if other is None:
        return found
    return found._replace(remedy=f"put {os.path.dirname(other.path)}, which has another, first in LIBRARY_PATH")


def _refused() -> Found:
    """Why what is here, if anything, does not count."""
    other = next(linked.candidates(), None)
    if other is None:
        return Found(None, "no OpenBLAS", REMEDY)
    return Found(None, f"{_base(other)} {_kind(other)}", f"its OpenMP build; {REMEDY}")


def _kind(library: Shared) -> str:
    """How a build that does not count runs. One with threads has a letter in its name: `libopenblasp-r0.3.21.so`."""
    runtime = next((name for name in library.needed if name.startswith(("libomp", "libiomp"))), "")
    if runtime:
        return f"runs on {runtime}, and the frame on {linked.RUNTIME}"
    if _base(library).startswith("libopenblas-r"):
        return "is single-threaded"
    return "has threads of its own (pthread build), which would compete with the OpenMP team"


def tools() -> tuple[Compiler, ...]:
    """It as a tool, where it is one."""
    found = find().tool
    return (found,) if found else ()


def find_tool(name: str) -> Compiler:
    """The tool of that name.

    Raises:
        UnknownName: it is not here, or is no build that counts.
    """
    found = find()
    if found.tool is None or found.tool.name != name:
        raise UnknownName(
            "this library is not here in a build that can be linked",
            got=name,
            allowed=found.tool.name if found.tool else f"none: {found.reason}",
            next_step=found.remedy or "tune again with the one that is here",
        )
    return found.tool


@functools.lru_cache(maxsize=8)
def _found(library: Shared, compiler: Compiler, cache: str) -> Found:
    """Try a build once; what works is remembered in the cache folder under the library's path, time and size."""
    name = f"{LIBRARY}-{_short(linked.described(library))}"
    known = remembered(library.path, cache)
    if known and known.name == name and compiler.version in known.version:
        return Found(known)
    said = ask(library, compiler)
    if said is None:
        return Found(None, f"a program that calls {_base(library)} cannot be built and run", "see `advisor doctor`")
    if said.parallel != OPENMP_BUILD:
        return Found(None, f"{_base(library)} says it is no OpenMP build ({said.config})", REMEDY)
    version = f"OpenBLAS {linked.described(library)}\n{said.config}\nlinked by: {compiler.version}"
    return Found(remember(Compiler(name, library.path, version, LANGUAGE, linked.RUNTIME), cache))


def ask(library: Shared, compiler: Compiler, own_core: bool = True) -> Said | None:
    """Build a program that calls it, run it, and ask what it is; None where that fails.

    Args:
        library: the file.
        compiler: one that links the same OpenMP runtime.
        own_core: whether it may choose the core by itself; False: as OPENBLAS_CORETYPE has it.
    """
    with tempfile.TemporaryDirectory(prefix="advisor-") as folder:
        source, shared = os.path.join(folder, "probe.c"), os.path.join(folder, "probe.so")
        with open(source, "w", encoding="utf-8") as file:
            file.write(_PROBE_C)
        built = [compiler.path, *flags("o2"), "-fPIC", "-shared", source, "-o", shared]
        status, _ = run([*built, *options(library)], CHECK_LIMIT_S)
        if status:
            return None
        asked = "own" if own_core else "told"
        status, text = run([sys.executable, "-S", "-c", _PROBE_PY, shared, asked], CHECK_LIMIT_S)
    try:
        product, parallel, config, core = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return Said(parallel, config, core) if status == 0 and product == 11 else None


def core_note() -> str:
    """A sentence where OPENBLAS_CORETYPE makes it take this CPU for another than it would by itself, else empty."""
    told, library = os.environ.get(CORE), linked.openblas()
    compiler = next((one for one in compilers() if one.runtime == linked.RUNTIME), None)
    if not told or library is None or compiler is None or not linked.headers(library):
        return ""
    taken, own = ask(library, compiler, own_core=False), ask(library, compiler)
    if taken is None or own is None or taken.core == own.core:
        return ""
    return f"{CORE}={told} makes it compute as on {taken.core}, by itself it takes this CPU for {own.core}: unset it"


def options(library: Shared) -> list[str]:
    """What a compiler is told to compile and link against it, after the sources."""
    folder = os.path.dirname(library.path)
    return [f"-I{linked.headers(library)}", library.path, f"-Wl,-rpath,{folder}"]


def link_options(tool: Compiler) -> list[str]:
    """The same for the tool.

    Raises:
        UnknownName: its file is gone.
    """
    library = linked.read(tool.path)
    if library is None:
        raise UnknownName("the library must be where it was found", got=tool.path, next_step=REMEDY)
    return options(library)


def _base(library: Shared) -> str:
    return os.path.basename(library.path)


def _short(version: str) -> str:
    """Major and minor number of a version: 0.3 of 0.3.21."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else "unknown"
