"""Which small problems a build must get right before it is timed on a larger one."""

from __future__ import annotations

import itertools

from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.messages import Edge
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims, is_valid, macro_values
from advisor.records import Pairs, Problem

EDGE_ELEMENTS = 1 << 20
"""Edge problems that move more elements than this are left to `advisor verify`: a check must take milliseconds."""

EDGE_FLOPS = 1 << 26
"""The same for edge problems with more arithmetic than this."""

DEVICE_FLOPS, DEVICE_ELEMENTS = 1 << 36, 1 << 28
"""The same for the further edge problem of a device, which has it done in milliseconds."""

FURTHER = (259, 515, 1027, 2051, 4099, 8195, 16387, 131, 67, 17)
"""n of that problem, the first that a choice takes: three rows past tiles of 128, the longest there are. Where keys are
split among many blocks a choice takes no smaller ones; where weights are wide, the last ones alone are within the
limits. The same n on the way to every larger one, so that operands, references and what a library compiles are made
once."""

FEW_KEYS = 5
"""n of one more there, where rows attend to rows and no listed n is within the limits: among hundreds of keys one that
is left out moves a row by less than sixteen bits round, among five it does not. Odd, as those are: nothing is compiled
again for it."""

BOUND_TO_SHAPE = ("triton", "torch")
"""Languages whose calls are compiled, or planned by a library, for each fixed shape apart: for up to a second."""


def edges(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> tuple[Edge, ...]:
    """The edge problems of a build on the way to `problem`, smallest n first.

    The spec's own edges as far as the same binary computes them, and its n at the shape of `problem`; none over the
    problem's own n, so that a variant that fails only at large n stays usable below. Other shapes are left to
    `advisor verify` where each would be compiled apart. On a device one or two more, see `_further`.
    """
    listed = [edge for edge in spec.edges() if edge.dtype == problem.dtype]
    wanted = dict.fromkeys([*listed, *(problem._replace(n=edge.n, regime="warm") for edge in listed)])
    macros = macro_values(variant, problem, knobs)
    kept = [
        edge
        for edge in wanted
        if edge.n <= problem.n
        and edge != problem
        and sum(spec.elements(edge)) <= EDGE_ELEMENTS
        and spec.flops(edge) <= EDGE_FLOPS
        and is_valid(variant, edge, knobs)
        and macro_values(variant, edge, knobs) == macros
        and (edge.shape == problem.shape or variant.language not in BOUND_TO_SHAPE)
    ]
    is_listed = any(edge.shape == problem.shape and edge.n > 1 for edge in kept)
    kept += [edge for edge in _further(spec, variant, problem, knobs, is_listed) if edge not in kept]
    return tuple(
        Edge(edge, entry_dims(spec, variant, edge, knobs), draw)
        for edge in sorted(kept, key=lambda e: e.n)
        for draw in spec.draws
    )


def beyond(spec: KernelSpec) -> tuple[Problem, ...]:
    """What `advisor verify` has on a device beside the spec's own edges: each of their dtypes and shapes at the first
    two of FURTHER, since choices that split keys or take long tiles are valid, or differ from others, from there on."""
    each = {(edge.dtype, edge.shape): edge for edge in spec.edges()}
    return tuple(edge._replace(n=n) for edge in each.values() for n in FURTHER[:2])


def _further(
    spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs, is_listed: bool
) -> tuple[Problem, ...]:
    """On a device, a problem of the same shape with an odd n: tiles that are full, then one that is not; and one of a
    few keys where none of that shape is listed.

    Shapes that are served are too large for the limits above, so that a choice would be timed there after no edge at
    all.
    """
    if variant.language not in GPU_LANGUAGES:
        return ()
    macros = macro_values(variant, problem, knobs)

    def first(sizes: tuple[int, ...]) -> list[Problem]:
        found = (problem._replace(n=n, regime="warm") for n in sizes if 0 < n < problem.n)
        able = (
            edge
            for edge in found
            if sum(spec.elements(edge)) <= DEVICE_ELEMENTS
            and spec.flops(edge) <= DEVICE_FLOPS
            and is_valid(variant, edge, knobs)
            and macro_values(variant, edge, knobs) == macros
        )
        return list(itertools.islice(able, 1))

    attends = "heads" in dict(problem.shape)
    few = first((FEW_KEYS,)) if attends and not is_listed else []
    return tuple(dict.fromkeys([*few, *first((*FURTHER, (problem.n - 2) | 1))]))
