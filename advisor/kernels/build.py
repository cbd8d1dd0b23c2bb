"""Compile a variant once per content: source, frame, macros, knobs, dtype, compiler, flags and instruction sets.

A library lies in the cache folder under the hash of all that, with a note of its checksum beside it. It is written
under another name and renamed, and built under a lock, so that two processes never see half a file nor build twice.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import time
from typing import NamedTuple

import filelock

from advisor.errors import BadInput, BuildError, Busy, OutOfTime
from advisor.kernels.compilers import Compiler, flags, private_child
from advisor.kernels.fortran import KINDS, NAMED, frame_compiler, link_command
from advisor.kernels.fortran import LANGUAGE as FORTRAN
from advisor.kernels.libraries import FLAGS as LIBRARY_FLAGS
from advisor.kernels.libraries import LANGUAGE as PYTHON
from advisor.kernels.libraries import find_tool
from advisor.kernels.openblas import link_options
from advisor.kernels.process import run
from advisor.kernels.variant import Variant, macro_values
from advisor.paths import cache_dir
from advisor.records import Build, Problem
from advisor.sources import source_hash

COMPILE_LIMIT_S = 120.0
"""Limit of one compilation: they take under a second; a compiler that loops is killed here."""

LEFTOVER_S = 3600.0
"""Age of half-made files after which nobody can be at work on them any more."""

LAST_LINES = 12
"""How much of a compiler's output an error carries."""

FRAME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frame")


class Real(NamedTuple):
    """What a dtype is in C: the type computed in (ADV_REAL), its bytes, the storage (ADV_DTYPE), the value of that."""

    name: str
    size: int
    storage: str
    code: int


REALS = {
    "float64": Real("double", 8, "ADV_FLOAT64", 1),
    "float32": Real("float", 4, "ADV_FLOAT32", 2),
    "bfloat16": Real("float", 4, "ADV_BFLOAT16", 3),
    "float16": Real("float", 4, "ADV_FLOAT16", 4),
}
"""dtype -> its C. The codes are those of frame/advisor.h: a library says what it was compiled with."""

_LEFTOVER = re.compile(r"\.so\.[0-9]+\.(c|so|so\.o|json)$")

FRAME_FLAGS = ("-O2", "-fopenmp")
"""How the frame is compiled where the variant is in Fortran."""


class Library(NamedTuple):
    """A compiled variant, or an empty path for a library call, of which nothing is compiled. `seconds`: time this call
    spent compiling, 0.0 when it lay in the cache."""

    path: str
    seconds: float


class Recipe(NamedTuple):
    """All that decides what a library contains. `key` names it; `macros` are the values it must have inside."""

    variant: Variant
    compiler: Compiler
    flags: tuple[str, ...]
    real: Real
    macros: tuple[tuple[str, int], ...]
    key: str


def build(variant: Variant, build: Build, problem: Problem, until: float = math.inf) -> Library:
    """The library of a build, compiled now or taken from the cache.

    Args:
        variant: the source, as it was read.
        build: the build part of a choice; its variant and source hash must be this variant's.
        problem: for the dtype and the macros over its shape.
        until: on the monotonic clock; then a compiler at work is killed.

    Raises:
        OutOfTime: it was not compiled until then, which says nothing about it.
        BuildError: it does not compile; the message has the compiler's last lines.
        BadInput: the source changed since it was read, or a knob is not in its header.
        UnknownName: the compiler or the flag set does not exist here.
        Busy: another process has been building the same thing for longer than a compilation may take.
    """
    recipe = make_recipe(variant, build, problem)
    if variant.language == PYTHON:
        return Library("", 0.0)
    path = os.path.join(_folder(), f"{variant.kernel}-{variant.name}-{recipe.key}.so")
    if _is_sound(path):
        return Library(path, 0.0)
    start = time.monotonic()
    patience_s = min(2 * COMPILE_LIMIT_S, _left_s(recipe, until))
    try:
        with filelock.FileLock(f"{path}.lock", timeout=patience_s):
            if not _is_sound(path):  # another process may have built it meanwhile
                _compile(recipe, path, until)
    except filelock.Timeout as error:
        _left_s(recipe, until)
        raise Busy(
            "another process is building the same variant", got=path, next_step="end it, or try again"
        ) from error
    return Library(path, time.monotonic() - start)


def _left_s(recipe: Recipe, until: float) -> float:
    """Seconds until then. Raises OutOfTime when there are none."""
    left = until - time.monotonic()
    if left <= 0:
        name = recipe.variant.name
        raise OutOfTime("the budget ended before it was built", got=name, next_step="give it a larger one")
    return left


def make_recipe(variant: Variant, build: Build, problem: Problem) -> Recipe:
    """Gather what decides a library's content and hash it. Raises as `build`, but for compiling."""
    if (build.variant, build.source_hash) != (variant.name, variant.source_hash):
        raise BadInput(
            "the choice must be of this very source",
            got=f"{build.variant} {build.source_hash}",
            allowed=f"{variant.name} {variant.source_hash}",
            next_step="tune again: the source changed since the choice was made",
        )
    if problem.dtype not in REALS:
        raise BadInput("C variants are built for dtypes that C can hold", got=problem.dtype, allowed=", ".join(REALS))
    compiler, chosen = _tool(variant, build)
    macros, real = macro_values(variant, problem, build.knobs), REALS[problem.dtype]
    content = {
        "source": _checked_digest(variant),
        "frame": _frame_digest(FRAME),
        "macros": macros,
        "real": real,
        "compiler": [compiler.path, compiler.version],
        "flags": chosen,
        "isa": _isa(),
    }
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return Recipe(variant, compiler, chosen, real, macros, key)


def _tool(variant: Variant, build: Build) -> tuple[Compiler, tuple[str, ...]]:
    """The compiler of a build with its flags, or the library, which has none.

    Raises:
        UnknownName: the compiler, the library or the flag set does not exist here.
        BadInput: it is not for the variant's language.
    """
    python = variant.language == PYTHON
    tool = find_tool(build.compiler)
    if tool.language != variant.made_with or (python and build.flags != LIBRARY_FLAGS):
        raise BadInput(
            f"{variant.name} is in {variant.made_with}",
            got=f"{build.compiler}, flags {build.flags}",
            allowed=f"a library, flags {LIBRARY_FLAGS}" if python else "a compiler",
        )
    if python:
        return tool, ()
    named = NAMED if tool.language == FORTRAN else ()
    return tool, (*flags(build.flags, compiler=tool.name), *named)


def _folder() -> str:
    folder = private_child(cache_dir(), "build")
    _sweep(folder)
    return folder


@functools.lru_cache(maxsize=4)
def _sweep(folder: str) -> None:
    """Remove what killed compilations left, once a process; by age, since another container may share the folder."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if _LEFTOVER.search(name) and time.time() - os.lstat(path).st_mtime > LEFTOVER_S:
                os.unlink(path)


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _checked_digest(variant: Variant) -> str:
    try:
        found = source_hash(variant.path)
    except OSError as error:
        raise BadInput("the variant's source must be readable", got=variant.path) from error
    if found != variant.source_hash:
        raise BadInput("the source changed since it was read", got=variant.path, next_step="start again")
    return found


@functools.lru_cache(maxsize=4)
def _frame_digest(folder: str) -> list[str]:
    return [_digest(os.path.join(folder, name)) for name in ("advisor.h", "frame.c")]


@functools.cache
def _isa() -> str:
    """What -march=native looks at: the first CPU's identity and instruction sets, hashed."""
    wanted = re.compile(r"^(vendor_id|cpu family|model|stepping|flags|Features|CPU part|isa)\s*:.*$", re.M)
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().split("\n\n")[0]
    except OSError:
        first = ""
    lines = [match[0] for match in wanted.finditer(first)]
    return hashlib.sha256("\n".join([os.uname().machine, *lines]).encode()).hexdigest()[:12]


def _note(path: str) -> str:
    return f"{path}.json"


def _is_sound(path: str) -> bool:
    """Whether a cached library is this user's, not writable by others, no link, and has its noted checksum."""
    try:
        found = os.lstat(path)
        if os.path.islink(path) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            return False
        with open(_note(path), encoding="utf-8") as file:
            note = json.load(file)
        return bool(note["sha256"] == _digest(path))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _wrapper(recipe: Recipe) -> str:
    """The C file that is compiled: the variant, then what it really was compiled with, for the worker to check.

    Where the variant is in Fortran it has the frame instead, so that the frame is one object to link with.
    """
    names = [name for name, _ in recipe.macros]
    own = os.path.join(FRAME, "frame.c") if recipe.variant.language == FORTRAN else recipe.variant.path
    return "\n".join(
        [
            f"#include {json.dumps(own)}",
            '#include "advisor.h"',
            f'const char advisor_build_key[] = "{recipe.key}";',
            f"const int64_t advisor_macro_values[] = {{{', '.join([*names, '0'])}}};",
            "const int64_t advisor_real[] = {sizeof(ADV_REAL), ADV_DTYPE};",
            "",
        ]
    )


def _commands(recipe: Recipe, wrapper: str, library: str) -> list[list[str]]:
    """What is run, in this order, to make the library."""
    own = os.path.dirname(recipe.variant.path)
    kind = [("ADV_KIND", KINDS[recipe.real.name])] if recipe.variant.language == FORTRAN else []
    types = (("ADV_REAL", recipe.real.name), ("ADV_DTYPE", recipe.real.storage), *kind)
    defines = [f"-D{name}={value}" for name, value in (*types, *recipe.macros)]
    common = ["-std=gnu11", "-fPIC", f"-I{FRAME}", f"-I{own}", *defines, wrapper]
    if recipe.variant.language == FORTRAN:
        frame = f"{library}.o"
        in_c = [frame_compiler(recipe.compiler).path, *FRAME_FLAGS, *common, "-c", "-o", frame]
        return [in_c, link_command(recipe.compiler, recipe.flags, defines, recipe.variant.path, frame, library)]
    rest = ["-shared", os.path.join(FRAME, "frame.c"), "-o", library, "-lm"]
    if recipe.variant.libraries:
        compiler = frame_compiler(recipe.compiler).path
        return [[compiler, *recipe.flags, *common, *rest, *link_options(recipe.compiler)]]
    return [[recipe.compiler.path, *recipe.flags, *common, *rest]]


def _compile(recipe: Recipe, path: str, until: float) -> None:
    temporary = f"{path}.{os.getpid()}"
    wrapper, library = f"{temporary}.c", f"{temporary}.so"
    try:
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(_wrapper(recipe))
        for command in _commands(recipe, wrapper, library):
            _run_or_refuse(recipe, command, os.path.dirname(path), until)
        os.chmod(library, 0o700)
        with open(f"{temporary}.json", "w", encoding="utf-8") as file:
            json.dump({"sha256": _digest(library), "macros": recipe.macros}, file)
        os.replace(library, path)
        os.replace(f"{temporary}.json", _note(path))
    finally:
        for leftover in (wrapper, library, f"{library}.o", f"{temporary}.json"):
            if os.path.exists(leftover):
                os.unlink(leftover)


def _run_or_refuse(recipe: Recipe, command: list[str], folder: str, until: float) -> None:
    """Run one command of a compilation.

    Raises:
        BuildError: it failed; the message has its last lines.
        OutOfTime: it was killed when the time ended.
    """
    status, output = run(command, min(COMPILE_LIMIT_S, _left_s(recipe, until)), cwd=folder)
    if status:
        _left_s(recipe, until)
    if status or not os.path.exists(command[command.index("-o") + 1]):
        raise BuildError(
            f"{recipe.variant.name} must compile with {recipe.compiler.name} {' '.join(recipe.flags)}",
            got=f"exit status {status}",
            next_step="\n".join(output.strip().splitlines()[-LAST_LINES:]),
        )
