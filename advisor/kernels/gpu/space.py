"""The space of one device: every choice that is valid for a problem, knob sets that launch the same thing once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from advisor.errors import BadInput, UnknownName
from advisor.kernels.gpu.device import fits, missing
from advisor.kernels.gpu.geometry import geometry, is_grid, program
from advisor.kernels.libraries import FLAGS
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, knob_sets
from advisor.records import Build, Choice, Gpu, Pairs, Problem

Tools = Sequence[tuple[str, str]]
"""(name, language) of each tool."""


def _distinct(gpu: Gpu, spec: KernelSpec, variant: Variant, problem: Problem) -> list[Pairs]:
    """Knob sets of different launches that the device can make, the defaults first, which stand for their equals."""
    listed = sorted(knob_sets(variant, problem), key=lambda knobs: (knobs != variant.defaults, knobs))
    found: dict[tuple[object, ...], Pairs] = {}
    for knobs in listed:
        if is_possible(gpu, spec, variant, problem, knobs):
            found.setdefault(program(spec, variant, problem, knobs), knobs)
    return list(found.values())


def is_possible(gpu: Gpu, spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> bool:
    """Whether a device has the shared memory, and a grid the extents, that the launches of a valid choice ask for."""
    if variant.launch is None:
        return True
    found = geometry(spec, variant, problem, knobs)
    return fits(found, gpu) and all(is_grid(one) for one in found.extents)


def gpu_space(
    gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], problem: Problem, tools: Tools
) -> tuple[Choice, ...]:
    """Every valid choice for a problem on a device, of a variant its defaults first; team and process part are None.

    Raises:
        BadInput: the problem is of another kernel.
    """
    if problem.kernel != spec.name:
        raise BadInput("a problem must be of the kernel that is tuned", got=problem.kernel, allowed=spec.name)
    usable = [variant for variant in variants if not missing(variant, gpu)]
    return tuple(
        Choice(Build(variant.name, variant.source_hash, knobs, name, FLAGS), None, None)
        for variant, (name, language) in itertools.product(usable, tools)
        if language == variant.language
        for knobs in _distinct(gpu, spec, variant, problem)
    )


TOLD = 6
"""Variants that a refusal names."""


def _told(variants: Sequence[Variant]) -> str:
    """The first few variants with what they need, and how many more there are."""
    named = [f"{v.name} ({v.language}, {' '.join(v.requires)})" for v in variants[:TOLD]]
    more = len(variants) - len(named)
    return ", ".join([*named, *([f"and {more} more"] if more else [])]) or "none"


def gpu_default(gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], problem: Problem, tools: Tools) -> Choice:
    """What an untuned device would take: the first in rank of the frame's own variants, default knobs where valid.

    Raises:
        UnknownName: nothing can run this problem here.
    """
    choices = gpu_space(gpu, spec, variants, problem, tools)
    libraries = {variant.name for variant in variants if variant.language == "torch"}
    order = {variant.name: (variant.name in libraries, variant.rank, variant.name) for variant in variants}
    defaults = {variant.name: variant.defaults for variant in variants}
    if not choices:
        raise UnknownName(
            "no variant can run this problem on this device",
            got=f"{problem.kernel} {problem.dtype} {dict(problem.shape)} on {gpu.name}",
            allowed=_told(variants),
            next_step="see docs/add-a-gpu-variant.md",
        )
    return min(choices, key=lambda c: (order[c.build.variant], c.build.knobs != defaults[c.build.variant]))
