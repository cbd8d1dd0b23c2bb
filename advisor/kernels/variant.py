"""Variant: one realisation (ONF) of a kernel. Which there are, and which choices each of them has.

What the header of its source file says, and how that is checked: header.py.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.expressions import evaluate
from advisor.kernels.header import CPU_LANGUAGES, Knobs, Variant, kernel_named, read_variant
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.spec import KernelSpec
from advisor.records import Build, Choice, Machine, Pairs, Problem, pairs

__all__ = [
    "Variant",
    "check_expressions",
    "default_build",
    "entry_dims",
    "evaluate",
    "for_machine",
    "is_valid",
    "knob_sets",
    "macro_values",
    "missing_isa",
    "names",
    "read_variant",
    "run_values",
    "variants",
]


def variants(
    kernel: str, extra_dirs: Sequence[str] = (), languages: Sequence[str] = CPU_LANGUAGES
) -> tuple[Variant, ...]:
    """All variants of a kernel in some languages, sorted by (rank, name).

    Args:
        kernel: its name.
        extra_dirs: folders given by `--kernel-dir`: DIR/<kernel>/*.c, and DIR/*.c whose header names its kernel.
        languages: those of one kind of device.

    Raises:
        UnknownName: no such kernel.
        BadInput: a header lies, two files have one name, or a folder of `extra_dirs` adds nothing.
    """
    places = registry.folders(extra_dirs).get(kernel, ())
    paths = [path for place in places for path in _sources(place)]
    loose = [path for root in extra_dirs for path, name in _loose(root, extra_dirs) if name == kernel]
    found: dict[str, Variant] = {}
    for variant in (read_variant(path, kernel) for path in [*paths, *loose]):
        other = found.setdefault(variant.name, variant)
        if other.path != variant.path:
            raise BadInput(f"variants of {kernel} need names of their own", got=f"{other.path} and {variant.path}")
    if not found and kernel not in registry.kernels(extra_dirs):
        raise UnknownName("there is no such kernel", got=kernel, allowed=", ".join(registry.kernels(extra_dirs)))
    own = (variant for variant in found.values() if variant.language in languages)
    return tuple(sorted(own, key=lambda v: (v.rank, v.name)))


def _loose(root: str, extra_dirs: Sequence[str]) -> list[tuple[str, object]]:
    """Sources directly in a `--kernel-dir` with the kernel that each names; others of a user's files may lie there.

    Raises:
        BadInput: nothing there is a variant, or a header names a kernel that does not exist: silence would look like
            a variant that was tried and lost.
    """
    known = registry.folders(extra_dirs)
    found = [(path, kernel_named(path)) for path in _sources(root)]
    named = [(path, name) for path, name in found if name is not None]
    for path, name in named:
        if name not in known:
            raise BadInput(f"{path} must name a kernel that there is", got=name, allowed=", ".join(sorted(known)))
    if not named and not registry.holds_kernels(root):
        raise BadInput(
            "--kernel-dir must hold a variant",
            got=root if not found else f"{found[0][0]}, whose header names no kernel",
            allowed='DIR/<kernel>/<variant>.c, or DIR/<variant>.c with "kernel" in its header',
            next_step="see docs/add-a-variant.md",
        )
    return named


def _sources(folder: str) -> list[str]:
    """Variant sources of one folder, sorted by name. In a kernel's folder every C file must be a variant."""
    paths = [os.path.realpath(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]
    return [path for path in paths if registry.is_source(path)]


# --- choices of one variant ---


def names(problem: Problem, knobs: Pairs = ()) -> dict[str, int]:
    """What expressions may use: the shape, n, and the knobs."""
    return {**problem.dims(), **dict(knobs)}


def is_valid(variant: Variant, problem: Problem, knobs: Pairs) -> bool:
    """Whether a choice of knobs exists for this problem: the dtype is there and every `valid` expression holds.

    They know `item_bytes` too, of the storage: a library's backend may be for some dtypes only.
    """
    if problem.dtype not in variant.dtypes:
        return False
    known = {**names(problem, knobs), "item_bytes": ITEM_BYTES[problem.dtype]}
    return all(evaluate(rule, known) for rule in variant.valid)


def made_at(known: Sequence[Variant], problem: Problem) -> Callable[[Choice, int], bool]:
    """Whether a choice is made for an n of a problem's shape, by the header of its variant; an unknown one is."""
    by_source = {(one.name, one.source_hash): one for one in known}

    def made(choice: Choice, n: int) -> bool:
        variant = by_source.get((choice.build.variant, choice.build.source_hash))
        return variant is None or is_valid(variant, problem._replace(n=n), choice.build.knobs)

    return made


def knob_sets(variant: Variant, problem: Problem) -> list[Pairs]:
    """All valid combinations of build and run knobs for a problem, in header order; one empty set without knobs."""
    knobs = [*variant.build_knobs, *variant.run_knobs]
    keys = [knob for knob, _ in knobs]
    sets = (pairs(dict(zip(keys, values, strict=True))) for values in itertools.product(*(v for _, v in knobs)))
    return [knob_set for knob_set in sets if is_valid(variant, problem, knob_set)]


def check_expressions(variant: Variant, problems: Sequence[Problem]) -> None:
    """Evaluate all that a header says at some problems, so that one that lies is refused before anything is run.

    Raises:
        BadInput: naming the source and the expression.
    """
    for problem in problems:
        try:
            sets = knob_sets(variant, problem)
            for knobs in sets[:1]:
                macro_values(variant, problem, knobs)
                for text in (variant.reads, variant.writes, variant.atomics):
                    evaluate(text, names(problem, knobs))
        except BadInput as error:
            raise BadInput(
                f"{os.path.basename(variant.path)}: the header's expressions must have a value at n = {problem.n}",
                got=str(error),
                next_step=f"edit {variant.path}",
            ) from error


def macro_values(variant: Variant, problem: Problem, knobs: Pairs) -> tuple[tuple[str, int], ...]:
    """Every macro of a build with its value, sorted by name: shape macros and build knobs.

    Raises:
        BadInput: a build knob is missing or has a value that the header does not list.
    """
    chosen, dims = dict(knobs), names(problem)
    values = {macro: evaluate(text, dims) for macro, text in variant.macros}
    for knob, allowed in variant.build_knobs:
        values[knob] = _listed(variant, knob, chosen, allowed)
    return tuple(sorted(values.items()))


def run_values(variant: Variant, knobs: Pairs) -> tuple[int, ...]:
    """The values of the run knobs in the order in which the entry takes them.

    Raises:
        BadInput: a run knob is missing or has a value that the header does not list.
    """
    chosen = dict(knobs)
    return tuple(_listed(variant, knob, chosen, allowed) for knob, allowed in variant.run_knobs)


def _listed(variant: Variant, knob: str, chosen: Mapping[str, Any], allowed: tuple[int, ...]) -> int:
    value = chosen.get(knob)
    if not isinstance(value, int) or value not in allowed:
        raise BadInput(f"{variant.name} needs the knob {knob}", got=value, allowed=str(allowed))
    return value


def entry_dims(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> tuple[int, ...]:
    """What the entry gets as `dims`: the spec's dims, then the run knobs."""
    known = problem.dims()
    return (*(known[name] for name in spec.dims), *run_values(variant, knobs))


def for_machine(found: Sequence[Variant], machine: Machine) -> tuple[Variant, ...]:
    """The variants with those values of build knobs left out that need what the machine lacks.

    A value that every choice would need stays, so that a variant still says what is missing (`missing_isa`).
    """
    return tuple(variant._replace(build_knobs=_able_knobs(variant, machine)) for variant in found)


def _able_knobs(variant: Variant, machine: Machine) -> Knobs:
    unable = {(knob, value) for knob, value, flags in variant.needs if not all(flag in machine.isa for flag in flags)}
    kept = [
        (knob, tuple(value for value in values if (knob, value) not in unable)) for knob, values in variant.build_knobs
    ]
    return tuple((knob, able or values) for (knob, able), (_, values) in zip(kept, variant.build_knobs, strict=True))


def missing_isa(variant: Variant, machine: Machine) -> tuple[str, ...]:
    """Instruction sets that a variant requires and the machine lacks."""
    return tuple(flag for flag in variant.requires if flag not in machine.isa)


def default_build(found: Sequence[Variant], problem: Problem, machine: Machine, compiler: str, flags: str) -> Build:
    """The build an untuned machine would take: the lowest rank whose requirements this machine and problem meet.

    Args:
        found: the variants, sorted by rank.
        problem: what is to be computed.
        machine: for its instruction sets.
        compiler: name of a compiler.
        flags: name of a flag set.

    Raises:
        UnknownName: no variant can run this problem here.
    """
    fitting = [variant for variant in found if not missing_isa(variant, machine)]
    for variant in fitting:
        if is_valid(variant, problem, variant.defaults):
            return Build(variant.name, variant.source_hash, variant.defaults, compiler, flags)
    for variant in fitting:
        for knobs in knob_sets(variant, problem)[:1]:
            return Build(variant.name, variant.source_hash, knobs, compiler, flags)
    raise UnknownName(
        "no variant can run this problem on this machine",
        got=f"{problem.kernel} {problem.dtype} {dict(problem.shape)}",
        allowed=", ".join(f"{v.name} (needs {' '.join(v.requires) or 'nothing'})" for v in found) or "none",
        next_step="add a variant without `requires` (docs/add-a-variant.md)",
    )
