"""Compilers that can build and load an OpenMP library here, and the flag sets that choices name."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from typing import NamedTuple

from advisor.errors import BadInput, UnknownName
from advisor.kernels.process import run
from advisor.paths import cache_dir, private
from advisor.records import Machine

CHECK_LIMIT_S = 30.0
"""Limit of one compiler's trial build and load: a cold compiler on a network disk takes a few seconds."""

_FAMILIES = ("gcc", "clang")
_PROBE_C = """#include <omp.h>
int advisor_probe(void)
{
    int n = 0;
#pragma omp parallel num_threads(2) reduction(+ : n)
    n += 1;
    return n;
}
"""
PROBE_PY = """import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
print(lib.advisor_probe(), "libomp" if hasattr(lib, "__kmpc_fork_call") else "libgomp")
"""


class Compiler(NamedTuple):
    """One compiler. `name`: family and major version; `version`: its full version text; `runtime`: its OpenMP's."""

    name: str
    path: str
    version: str
    language: str
    runtime: str


_NATIVE = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-ffinite-math-only",
    "-fopenmp",
)
FLAG_SETS: dict[str, tuple[str, ...]] = {
    "o2": ("-O2", "-fopenmp"),
    "native": _NATIVE,
    "wide": (*_NATIVE, "-mprefer-vector-width=512"),
}
"""Flag set name -> flags. `native` has what lets reductions vectorise without the whole of -ffast-math (infinities are
undefined in it, see docs); `wide` makes a compiler that knows the CPU too little use 512-bit vectors."""

_FLANG: dict[str, tuple[str, ...]] = {
    "-fno-math-errno": (),
    "-fno-trapping-math": (),
    "-ffinite-math-only": ("-fno-honor-nans", "-fno-honor-infinities"),
    "-mprefer-vector-width=512": ("-Xflang", "-target-feature", "-Xflang", "-prefer-256-bit"),
}
"""What flang 19 and 22 refuse -> what they have instead. Neither sets errno nor traps. They know no preferred width;
what tunes a CPU for 256 bits is a feature of it, which can be taken away."""

_NEEDS = {"wide": ("avx512f",)}


def flag_sets(machine: Machine) -> tuple[str, ...]:
    """Names of the flag sets that make sense on a machine, the default one first."""
    order = ("native", "o2", "wide")
    return tuple(name for name in order if all(flag in machine.isa for flag in _NEEDS.get(name, ())))


def flags(name: str, architecture: str = "", compiler: str = "") -> tuple[str, ...]:
    """The flags of a set, as this architecture and this compiler spell them.

    Args:
        name: of the set.
        architecture: as uname has it; empty: this machine's.
        compiler: family, or name of a tool; empty: gcc, whose spelling clang and gfortran share.

    Raises:
        UnknownName: no such flag set.
    """
    if name not in FLAG_SETS:
        raise UnknownName("there is no such flag set", got=name, allowed=", ".join(FLAG_SETS))
    found = FLAG_SETS[name]
    if compiler.partition("-")[0] == "flang":
        found = tuple(own for flag in found for own in _FLANG.get(flag, (flag,)))
    if (architecture or os.uname().machine) in ("aarch64", "arm64"):
        # clang on ARM learned -march=native late; -mcpu=native means the same to both families
        return tuple("-mcpu=native" if flag == "-march=native" else flag for flag in found)
    return found


def compilers() -> tuple[Compiler, ...]:
    """C compilers on PATH (and $CC) that build and load an OpenMP library, gcc before clang, newest first.

    Each is tried once; what works is remembered in the cache folder under its path, time and size, and in this process
    under PATH and CC.
    """
    return _compilers(os.environ.get("PATH", os.defpath), os.environ.get("CC", ""), cache_dir())


def find_compiler(name: str) -> Compiler:
    """The compiler of that name.

    Raises:
        UnknownName: it is not on this machine, or cannot build an OpenMP library.
    """
    found = {compiler.name: compiler for compiler in compilers()}
    if name not in found:
        raise UnknownName(
            "this compiler is not here or cannot build OpenMP programs",
            got=name,
            allowed=", ".join(found) or "none found",
            next_step="install it (Debian: gcc, or clang with libomp-dev) and see `advisor doctor`",
        )
    return found[name]


@functools.lru_cache(maxsize=8)
def _compilers(path: str, cc: str, cache: str) -> tuple[Compiler, ...]:
    found: dict[str, Compiler] = {}
    for program in _programs(path, cc):
        compiler = remembered(program, cache) or _tried(program, cache)
        if compiler is not None:
            found.setdefault(compiler.name, compiler)
    return tuple(sorted(found.values(), key=_order))


def _order(compiler: Compiler) -> tuple[int, int]:
    family, _, major = compiler.name.rpartition("-")
    return (_FAMILIES.index(family), -int(major))


def _programs(path: str, cc: str) -> list[str]:
    """Paths of candidate programs, links resolved, each once: $CC, plain names, then versioned names."""
    words = _split(cc)
    names = [shutil.which(name, path=path) for name in (*words[:1], *_FAMILIES, "cc")]
    versioned = [
        match
        for folder in path.split(os.pathsep)
        if os.path.isabs(folder)
        for family in _FAMILIES
        for match in sorted(glob.glob(os.path.join(glob.escape(folder), f"{family}-*")))
        if re.fullmatch(rf"{family}-\d+", os.path.basename(match)) and os.access(match, os.X_OK)
    ]
    return list(dict.fromkeys(os.path.realpath(name) for name in (*names, *versioned) if name))


def _split(cc: str) -> list[str]:
    try:
        return shlex.split(cc)
    except ValueError as error:
        raise BadInput("CC must be a command line", got=cc, next_step=str(error)) from error


def _memory_file(program: str, cache: str) -> str:
    found = os.stat(program)
    key = hashlib.sha256(f"{program} {found.st_mtime_ns} {found.st_size}".encode()).hexdigest()[:16]
    return os.path.join(private_child(cache, "compilers"), f"{key}.json")


def private_child(cache: str, name: str) -> str:
    """A private subfolder of the cache folder; both are created or checked."""
    return private(os.path.join(private(cache), name))


def remembered(program: str, cache: str) -> Compiler | None:
    """The compiler that a program was found to be when it was tried, None where that is not known."""
    try:
        with open(_memory_file(program, cache), encoding="utf-8") as file:
            data = json.load(file)
        return Compiler(*(str(data[field]) for field in Compiler._fields))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not tried yet, or a torn note: trying again costs half a second


def _tried(program: str, cache: str) -> Compiler | None:
    """Build and load an OpenMP library; a compiler that fails is tried again by the next process, it may be mended."""
    family, major, version = _version(program)
    if not family:
        return None
    with tempfile.TemporaryDirectory(prefix="advisor-") as folder:
        runtime = _built_and_loaded(program, folder)
    if runtime is None:
        return None
    compiler = Compiler(f"{family}-{major}", program, version, "c", runtime)
    return remember(compiler, cache)


def remember(compiler: Compiler, cache: str) -> Compiler:
    """Note a compiler that was tried, so that the next process need not try it again; returns it."""
    path = _memory_file(compiler.path, cache)
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(compiler._asdict(), file)
    os.replace(file.name, path)
    return compiler


def _version(program: str) -> tuple[str, str, str]:
    """(family, major version, full version text), empty texts when it is no compiler of a family we know."""
    status, text = run([program, "--version"], CHECK_LIMIT_S)
    status_major, major = run([program, "-dumpversion"], CHECK_LIMIT_S)
    number = re.match(r"\d+", major.strip())
    if status or status_major or not number:
        return "", "", ""
    family = "clang" if "clang" in text else "gcc" if "Free Software Foundation" in text else ""
    return family, number[0], text.strip()


def _built_and_loaded(program: str, folder: str) -> str | None:
    """The OpenMP runtime of a library built by this compiler, None when it cannot build or load one."""
    source, library = os.path.join(folder, "probe.c"), os.path.join(folder, "probe.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(_PROBE_C)
    status, _ = run([program, "-O1", "-fopenmp", "-fPIC", "-shared", source, "-o", library], CHECK_LIMIT_S)
    if status:
        return None
    status, text = run([sys.executable, "-S", "-c", PROBE_PY, library], CHECK_LIMIT_S)
    words = text.split()
    return words[1] if status == 0 and len(words) == 2 and words[0] == "2" else None
