"""Fortran compilers that can build and load an OpenMP library here, and how a variant in Fortran is compiled.

A library has two parts: the frame in C, which a C compiler with the same OpenMP runtime makes, and the variant, which
the Fortran compiler compiles and links with it. Both are named by the tool: gfortran-12 with gcc-12 behind it.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence

from advisor.errors import UnknownName
from advisor.installed import OTHER_NAMES
from advisor.kernels.compilers import CHECK_LIMIT_S, PROBE_PY, Compiler, compilers, flags, remember, remembered
from advisor.kernels.process import run
from advisor.paths import cache_dir

LANGUAGE = "fortran"

SUFFIX = ".f90"

FAMILIES = ("gfortran", "flang")
"""Preferred first. flang is looked for under OTHER_NAMES too."""

KINDS = {"double": "c_double", "float": "c_float"}
"""ADV_REAL in C -> ADV_KIND, the kind of a Fortran real that is the same."""

NAMED = ("-g1",)
"""Beside the flags of a set. No code differs; the library then says in its debug information which compiler made it,
which gfortran tells nowhere else from gcc, and flang 19 nowhere else at all."""

_PROBE_F90 = """integer(c_int) function advisor_probe() bind(C, name="advisor_probe")
  use iso_c_binding
  implicit none
  integer(c_int) :: n
  n = 0
  !$omp parallel num_threads(2) reduction(+ : n)
  n = n + 1
  !$omp end parallel
  advisor_probe = n
end function
"""


def fortran_compilers() -> tuple[Compiler, ...]:
    """Fortran compilers on PATH that build and load an OpenMP library, gfortran before flang, newest first.

    Each is tried once, with the flags that variants are built with; what works is remembered as for C compilers. One
    without a C compiler of the same OpenMP runtime, which the frame needs, is left out.
    """
    return _fortran_compilers(os.environ.get("PATH", os.defpath), compilers(), cache_dir())


@functools.lru_cache(maxsize=8)
def _fortran_compilers(path: str, in_c: tuple[Compiler, ...], cache: str) -> tuple[Compiler, ...]:
    framed = (_with_frame(one, in_c) for one in _working(path, cache))
    return tuple(one for one in framed if one)


@functools.lru_cache(maxsize=8)
def _working(path: str, cache: str) -> tuple[Compiler, ...]:
    """Those that build and load an OpenMP library, in order, whatever C compilers there are."""
    working = (remembered(program, cache) or _tried(program, cache) for program in _programs(path))
    found = {one.name: one for one in reversed([one for one in working if one])}
    return tuple(sorted(found.values(), key=_order))


def without_frame() -> tuple[Compiler, ...]:
    """Fortran compilers that work, but lack a C compiler with their OpenMP runtime, which makes the frame."""
    in_c = compilers()
    found = _working(os.environ.get("PATH", os.defpath), cache_dir())
    return tuple(one for one in found if not _behind(in_c, one.runtime))


def _with_frame(compiler: Compiler, in_c: Sequence[Compiler]) -> Compiler | None:
    """The tool that it is together with the C compiler behind it; None without one."""
    behind = _behind(in_c, compiler.runtime)
    return compiler._replace(version=f"{compiler.version}\nframe: {behind.version}") if behind else None


def _order(compiler: Compiler) -> tuple[int, int]:
    family, _, major = compiler.name.rpartition("-")
    return (FAMILIES.index(family), -int(major))


def _programs(path: str) -> list[str]:
    """Paths of candidate programs, links resolved, each once: plain names, then versioned ones."""
    plain = [shutil.which(name, path=path) for family in FAMILIES for name in (family, *OTHER_NAMES.get(family, ()))]
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    places = [(folder, name) for folder in folders for name in ("gfortran-*", "flang-*")]
    found = [hit for folder, name in places for hit in sorted(glob.glob(os.path.join(glob.escape(folder), name)))]
    versioned = [hit for hit in found if re.search(r"-\d+$", hit) and os.access(hit, os.X_OK)]
    return list(dict.fromkeys(os.path.realpath(name) for name in (*plain, *versioned) if name))


def _tried(program: str, cache: str) -> Compiler | None:
    """Build and load an OpenMP library; a compiler that fails is tried again by the next process, it may be mended."""
    status, text = run([program, "--version"], CHECK_LIMIT_S)
    number = re.search(r"(\d+)\.\d+", text)
    family = "gfortran" if "GNU Fortran" in text else "flang" if "flang" in text else ""
    if status or not number or not family:
        return None
    with tempfile.TemporaryDirectory(prefix="advisor-") as folder:
        runtime = _runtime(program, family, folder)
    if not runtime:
        return None
    return remember(Compiler(f"{family}-{number[1]}", program, text.strip(), LANGUAGE, runtime), cache)


def _runtime(program: str, family: str, folder: str) -> str:
    """The OpenMP runtime of a library built by this compiler, empty when it cannot build or load one."""
    source, library = os.path.join(folder, f"probe{SUFFIX}"), os.path.join(folder, "probe.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(_PROBE_F90)
    wanted = [*flags("native", compiler=family), "-cpp", "-fPIC", "-shared"]
    status, _ = run([program, *wanted, source, "-o", library], CHECK_LIMIT_S)
    if status:
        return ""
    status, text = run([sys.executable, "-S", "-c", PROBE_PY, library], CHECK_LIMIT_S)
    words = text.split()
    return words[1] if status == 0 and len(words) == 2 and words[0] == "2" else ""


def _behind(in_c: Sequence[Compiler], runtime: str) -> Compiler | None:
    return next((one for one in in_c if one.runtime == runtime), None)


def frame_compiler(tool: Compiler) -> Compiler:
    """The C compiler that makes the frame of a Fortran variant.

    Raises:
        UnknownName: none with its OpenMP runtime is here any more.
    """
    found = _behind(compilers(), tool.runtime)
    if found is None:
        raise UnknownName(
            f"{tool.name} needs a C compiler with {tool.runtime} for the frame",
            got="none",
            next_step="install one; see `advisor doctor`",
        )
    return found


def find_fortran(name: str) -> Compiler:
    """The Fortran compiler of that name.

    Raises:
        UnknownName: it is not on this machine, cannot build an OpenMP library, or has no C compiler behind it.
    """
    found = {one.name: one for one in fortran_compilers()}
    if name not in found:
        raise UnknownName(
            "this Fortran compiler is not here, cannot build OpenMP programs, or lacks a C compiler with its runtime",
            got=name,
            allowed=", ".join(found) or "none found",
            next_step="install it (Debian: gfortran, with gcc for the frame) and see `advisor doctor`",
        )
    return found[name]


def link_command(
    tool: Compiler, flag_set: Sequence[str], defines: Sequence[str], source: str, frame: str, library: str
) -> list[str]:
    """The command that compiles a Fortran source and links it with the object of its frame.

    Args:
        tool: the Fortran compiler.
        flag_set: of the build.
        defines: -D options, as for C.
        source: the variant.
        frame: the object made by `frame_compiler`.
        library: what is written.
    """
    return [tool.path, *flag_set, "-cpp", "-fPIC", "-shared", *defines, source, frame, "-o", library, "-lm"]
