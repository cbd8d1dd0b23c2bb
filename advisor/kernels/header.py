"""The header of a variant's source file: read, and checked against the source below it.

In C and CUDA source the header is the comment that opens the file, in Fortran the lines of comment that open it, in
Python (a library call, Triton) the module's docstring.

Header keys and the entry's form: docs/add-a-variant.md, and for GPUs docs/add-a-gpu-variant.md.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
from typing import Any, NamedTuple

from advisor.errors import BadInput
from advisor.installed import LINKED
from advisor.kernels.expressions import names_in
from advisor.kernels.launches import C_NAME, NAME, Launch, check_entries, take_launch
from advisor.kernels.launches import check_key as _check
from advisor.records import DTYPES, Pairs, pairs
from advisor.sources import parts, source_hash

__all__ = ["Knobs", "Launch", "Variant", "kernel_named", "read_variant"]

Knobs = tuple[tuple[str, tuple[int, ...]], ...]
"""Knob name -> values, in the order of the header (run knobs are handed over in this order)."""

SUFFIXES = {".c": ("c",), ".f90": ("fortran",), ".cu": ("cuda",), ".py": ("python", "triton", "torch")}
"""Source suffix -> the languages its header may name. Python files without such a header are no variants."""

CPU_LANGUAGES = ("c", "fortran", "python")
OWN_GPU_LANGUAGES = ("cuda", "triton")
LIBRARY_GPU_LANGUAGES = ("torch",)
GPU_LANGUAGES = OWN_GPU_LANGUAGES + LIBRARY_GPU_LANGUAGES

ARITHMETICS = ("real", "cache")
"""What a variant rounds: `real`: nothing below the type that is computed in (float32 beside a 16-bit cache); `cache`:
q, weights and the result to the cache's dtype, sums of products in float32. Each has its own derived tolerance."""

PYTHON_ARGUMENTS = {
    "python": ["buffers", "dims", "threads"],
    "triton": ["buffers", "dims", "knobs"],
    "torch": ["buffers", "dims", "knobs"],
}
"""Language -> what the entry of a variant in Python takes, and its workspace function too."""

MOST_KNOB_SETS = 10_000
"""Combinations of knob values of one variant: all are listed for every problem, and no search looks at more."""

_HEADER = re.compile(r"\A/\*\s*variant\s*(\{.*?\})\s*\*/", re.S)
_PYTHON_HEADER = re.compile(r'\A"""variant\s*(?=\{)')
_FORTRAN_HEADER = re.compile(r"\A!\s*variant\s*(?=\{)")
_FORTRAN_COMMENT = re.compile(r"^[ \t]*!(?!\$)[^\n]*", re.M)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_ISA = re.compile(r"[a-z0-9_.]+\Z")
_FRAME_MACROS = frozenset({"ADV_REAL", "ADV_DTYPE", "ADV_KIND"})


class Variant(NamedTuple):
    """One source file. `rank`: lowest wins for an untuned machine.

    `source_hash`: 12 hex digits of the sha256 of the file, and of the headers beside it that it includes.

    `macros` maps a macro to an expression over the dims, `reads`, `writes`, `atomics` are expressions over dims and
    knobs (elements moved, atomic updates), `valid` expressions that must all hold for a choice to exist. `needs`:
    (build knob, value, instruction sets without which that value is not worth a build). `launch`: of CUDA source.
    `prepares`: constant inputs that it rearranges once, outside of the clock. `arithmetic`: one of ARITHMETICS.
    `libraries`: libraries in C that it links.
    `mirrors`: variants in C of the same ONF, whose time and its own compare the languages; the first that is valid.
    """

    kernel: str
    name: str
    path: str
    source_hash: str
    idea: str
    language: str
    symbol: str
    dtypes: tuple[str, ...]
    requires: tuple[str, ...]
    macros: Pairs
    build_knobs: Knobs
    run_knobs: Knobs
    defaults: Pairs
    valid: tuple[str, ...]
    reads: str
    writes: str
    atomics: str
    mapping: str
    rank: int
    needs: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    launch: Launch | None = None
    prepares: tuple[str, ...] = ()
    arithmetic: str = "real"
    mirrors: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The entries that a call launches, in their order: one but for CUDA files of several kernels."""
        return (self.symbol, *(step.symbol for step in (self.launch.then if self.launch else ())))

    @property
    def made_with(self) -> str:
        """The language of the tools that make it: its own, and the library that it links: `c+openblas`."""
        return "+".join((self.language, *self.libraries))


def kernel_named(path: str) -> object:
    """The kernel that a header names by itself, None where it names none or the file has no header."""
    head = _head(path)
    return head.get("kernel") if head else None


def read_variant(path: str, kernel: str) -> Variant:
    """The variant that a source file describes.

    Raises:
        BadInput: no header, a key missing, unknown or of the wrong kind, or the source does not keep what it says.
    """
    head = _head(path)
    if head is None:
        raise BadInput(
            'a variant must begin with /* variant {JSON} */, in Fortran ! variant {JSON}, in Python """variant {JSON}',
            got=path,
            next_step="see docs/add-a-variant.md",
        )
    launch = take_launch(head, path) if head.get("language") == "cuda" else None
    _check_keys(head, path, kernel)
    name, suffix = os.path.splitext(os.path.basename(path))
    variant = Variant(
        kernel=kernel,
        name=name,
        path=os.path.realpath(path),
        source_hash=source_hash(path),
        idea=head["idea"],
        language=head["language"],
        symbol=head["symbol"],
        dtypes=tuple(head["dtypes"]),
        requires=tuple(head["requires"]),
        macros=pairs(head["macros"]),
        build_knobs=tuple((knob, tuple(values)) for knob, values in head["build_knobs"].items()),
        run_knobs=tuple((knob, tuple(values)) for knob, values in head["run_knobs"].items()),
        defaults=pairs(head["defaults"]),
        valid=tuple(head["valid"]),
        reads=head["reads"],
        writes=head["writes"],
        atomics=head["atomics"],
        mapping=head["mapping"],
        rank=head["rank"],
        needs=tuple(
            (knob, int(value), tuple(flags)) for knob, of in head["needs"].items() for value, flags in of.items()
        ),
        launch=launch,
        prepares=tuple(head["prepares"]),
        arithmetic=head["arithmetic"],
        libraries=tuple(head["libraries"]),
        mirrors=tuple(head["mirrors"]),
    )
    allowed = SUFFIXES.get(suffix, ())
    _check(variant.language in allowed, path, "language", variant.language, " or ".join(allowed))
    _check_names(variant)
    _check_knobs(variant)
    if variant.language in PYTHON_ARGUMENTS:
        _check_python(variant, _text(path))
    elif variant.language == "fortran":
        _check_fortran(variant, _FORTRAN_COMMENT.sub(" ", "\n".join(_text(part) for part in parts(path))))
    else:
        _check_source(variant, _COMMENT.sub(" ", "\n".join(_text(part) for part in parts(path))))
    return variant


def _head(path: str) -> dict[str, Any] | None:
    """The header's data, None where the file does not begin with one."""
    text = _text(path)
    if path.endswith(".py"):
        start = _PYTHON_HEADER.match(text)
        return _json(text[start.end() :], path, whole=False) if start else None
    if path.endswith(".f90"):
        start = _FORTRAN_HEADER.match(text)
        return _json(_uncommented(text[start.end() :]), path, whole=False) if start else None
    found = _HEADER.match(text)
    return _json(found[1], path) if found else None


def _uncommented(text: str) -> str:
    """Lines of Fortran comment as they were before the `!` came."""
    return "\n".join(line.removeprefix("!") for line in text.splitlines())


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise BadInput("a variant's source must be UTF-8 text", got=path) from error


def _json(text: str, path: str, whole: bool = True) -> dict[str, Any]:
    try:
        data = json.loads(text) if whole else json.JSONDecoder().raw_decode(text)[0]
    except ValueError as error:
        raise BadInput(f"{path}: the header must be JSON", got=text[:60], next_step=str(error)) from error
    if not isinstance(data, dict):
        raise BadInput(f"{path}: the header must be a JSON object", got=text[:60])
    return data


_KINDS: dict[str, tuple[type, ...]] = {
    "idea": (str,),
    "language": (str,),
    "symbol": (str,),
    "dtypes": (list,),
    "requires": (list,),
    "macros": (dict,),
    "build_knobs": (dict,),
    "run_knobs": (dict,),
    "defaults": (dict,),
    "valid": (list,),
    "reads": (str,),
    "writes": (str,),
    "atomics": (str, int),
    "mapping": (str,),
    "rank": (int,),
    "needs": (dict,),
    "prepares": (list,),
    "arithmetic": (str,),
    "libraries": (list,),
    "mirrors": (list,),
}
_OPTIONAL: dict[str, Any] = {
    "requires": [],
    "macros": {},
    "build_knobs": {},
    "run_knobs": {},
    "defaults": {},
    "valid": [],
    "atomics": "0",
    "needs": {},
    "prepares": [],
    "arithmetic": "real",
    "libraries": [],
    "mirrors": [],
}


def _check_keys(head: dict[str, Any], path: str, kernel: str) -> None:
    """Fill in optional keys, then check that every key is there, known, and of the right kind."""
    for key, value in _OPTIONAL.items():
        head.setdefault(key, value)
    named = head.pop("kernel", kernel)
    _check(named == kernel, path, "kernel", named, kernel)
    _check(set(head) == set(_KINDS), path, "keys", sorted(set(head) ^ set(_KINDS)), ", ".join(_KINDS))
    for key, kinds in _KINDS.items():
        good = isinstance(head[key], kinds) and not isinstance(head[key], bool)
        _check(good, path, key, head[key], " or ".join(kind.__name__ for kind in kinds))
    head["atomics"] = str(head["atomics"])


def _check_names(variant: Variant) -> None:
    path = variant.path
    _check(NAME.match(variant.name) is not None, path, "file name", variant.name, "small letters, digits, _")
    _check(C_NAME.match(variant.symbol) is not None, path, "symbol", variant.symbol, "a C name")
    _check(bool(variant.dtypes) and set(variant.dtypes) <= set(DTYPES), path, "dtypes", variant.dtypes, str(DTYPES))
    good = all(isinstance(flag, str) and _ISA.match(flag) for flag in variant.requires)
    _check(good, path, "requires", variant.requires, "flags as in /proc/cpuinfo")
    able = ARITHMETICS if variant.language in GPU_LANGUAGES else ARITHMETICS[:1]
    _check(variant.arithmetic in able, path, "arithmetic", variant.arithmetic, " or ".join(able))
    for macro in [*dict(variant.macros), *dict(variant.build_knobs)]:
        good = macro.startswith("ADV_") and _MACRO.match(macro) is not None and macro not in _FRAME_MACROS
        _check(good, path, "macros and build_knobs", macro, "ADV_ and capital letters, not ADV_REAL or ADV_DTYPE")
    good = all(isinstance(name, str) and NAME.match(name) for name in variant.prepares)
    _check(good, path, "prepares", variant.prepares, "names of inputs")
    _check(not variant.prepares or variant.language == "c", path, "prepares", variant.prepares, "none but in C")
    good = not variant.libraries or (variant.language == "c" and variant.libraries in [(name,) for name in LINKED])
    _check(good, path, "libraries", variant.libraries, f"in C, one of {', '.join(LINKED)}")
    good = all(isinstance(name, str) and NAME.match(name) for name in variant.mirrors)
    _check(good, path, "mirrors", variant.mirrors, "names of variants in C")
    good = not variant.mirrors or variant.language == "fortran"
    _check(good, path, "mirrors", variant.mirrors, "none but in Fortran")
    for knob, _ in variant.run_knobs:
        _check(NAME.match(knob) is not None, path, "run_knobs", knob, "small letters, digits, _")


def _check_knobs(variant: Variant) -> None:
    path, knobs = variant.path, dict(variant.build_knobs) | dict(variant.run_knobs)
    for knob, value, flags in variant.needs:
        good = value in dict(variant.build_knobs).get(knob, ()) and all(_ISA.match(flag) for flag in flags)
        _check(good, path, "needs", f"{knob} {value} {flags}", "build knob -> value -> flags as in /proc/cpuinfo")
    for knob, values in knobs.items():
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        _check(bool(values) and whole and len(set(values)) == len(values), path, knob, values, "distinct whole numbers")
    combinations = math.prod(len(values) for values in knobs.values())
    _check(combinations <= MOST_KNOB_SETS, path, "knobs", combinations, f"{MOST_KNOB_SETS} combinations of values")
    _check(dict(variant.defaults).keys() == knobs.keys(), path, "defaults", variant.defaults, "every knob once")
    for knob, value in variant.defaults:
        _check(value in knobs[knob], path, f"default of {knob}", value, str(knobs[knob]))
    clash = set(dict(variant.macros)) & set(knobs)
    _check(not clash, path, "names", sorted(clash), "a name is a macro or a knob, not both")
    over_dims = frozenset().union(*(names_in(text) for _, text in variant.macros))
    _check(not over_dims & set(knobs), path, "macros", sorted(over_dims), "expressions over dims alone")
    for text in (*variant.valid, variant.reads, variant.writes, variant.atomics):
        names_in(text)


def _check_source(variant: Variant, code: str) -> None:
    """The source must define what the header names: the entry, its workspace, and a default for every macro."""
    path = variant.path
    if variant.launch is not None:
        check_entries(path, variant.symbols, code)
    for name, kind in () if variant.launch else ((variant.symbol, "int"), (f"{variant.symbol}_workspace", "int64_t")):
        defined = re.search(rf"^[ \t]*{kind}\s+{name}\s*\(", code, re.M)
        _check(defined is not None, path, "symbol", name, f"a function `{kind} {name}(...)` in the source")
    for name, kind in ((f"{variant.symbol}_prepare", "int"), (f"{variant.symbol}_prepared", "int64_t")):
        defined = re.search(rf"^[ \t]*{kind}\s+{name}\s*\(", code, re.M)
        said = f"a function `{kind} {name}(...)` exactly where inputs are named"
        _check((defined is not None) == bool(variant.prepares), path, "prepares", variant.prepares, said)
    _check_macros(variant, code)


def _check_macros(variant: Variant, code: str) -> None:
    """Every macro of the header has its default in the source, and every ADV_ macro of the source is in the header."""
    path = variant.path
    named = set(dict(variant.macros)) | set(dict(variant.build_knobs))
    guarded = set(re.findall(r"^[ \t]*#[ \t]*ifndef[ \t]+(ADV_\w+)", code, re.M)) - _FRAME_MACROS
    for macro in sorted(named):
        block = (
            rf"^[ \t]*#[ \t]*ifndef[ \t]+{macro}\b\s*^[ \t]*#[ \t]*define[ \t]+{macro}\b[^\n]*\s*^[ \t]*#[ \t]*endif"
        )
        allowed = f"#ifndef {macro} / #define {macro} value / #endif"
        _check(re.search(block, code, re.M) is not None, path, "macros and build_knobs", macro, allowed)
    _check(guarded <= named, path, "macros and build_knobs", sorted(guarded - named), "every ADV_ macro of the source")


def _check_fortran(variant: Variant, code: str) -> None:
    """As for C; and no macro is set outside of its block, since the frame, which is C, cannot see a redefinition."""
    path, joined = variant.path, re.sub(r"&[ \t]*\n[ \t]*&?", " ", code)
    for name, kind in ((variant.symbol, "c_int"), (f"{variant.symbol}_workspace", "c_int64_t")):
        form = (
            rf"^[ \t]*integer\({kind}\)\s+function\s+{name}\s*\([^)]*\)\s*bind\(C,\s*name\s*=\s*[\"']{name}[\"']\s*\)"
        )
        allowed = f'integer({kind}) function {name}(...) bind(C, name="{name}")'
        _check(re.search(form, joined, re.M | re.I) is not None, path, "symbol", name, allowed)
    _check_macros(variant, code)
    outside = re.sub(
        r"^[ \t]*#[ \t]*ifndef[ \t]+(ADV_\w+)\s*#[ \t]*define[ \t]+\1\b[^\n]*\s*#[ \t]*endif", " ", code, flags=re.M
    )
    again = re.findall(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(ADV_\w+)", outside, re.M)
    _check(not again, path, "macros and build_knobs", again, "each ADV_ macro set in its #ifndef block alone")


def _check_python(variant: Variant, text: str) -> None:
    """The source must be Python that defines the entry and its workspace; there is nothing to fix at compile time."""
    path = variant.path
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"{path} must be Python", got=str(error), next_step=f"edit {path}") from error
    taken = {one.name: [word.arg for word in one.args.args] for one in body if isinstance(one, ast.FunctionDef)}
    for name in (variant.symbol, f"{variant.symbol}_workspace"):
        wanted = PYTHON_ARGUMENTS[variant.language]
        _check(taken.get(name) == wanted, path, "symbol", name, f"def {name}({', '.join(wanted)})")
    named = [*dict(variant.macros), *dict(variant.build_knobs)]
    _check(not named, path, "macros and build_knobs", named, "none in Python: use run_knobs")
