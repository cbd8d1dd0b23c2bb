"""Which small problems a build must get right before it is timed on a larger one."""

from __future__ import annotations

from bisect import bisect_right

from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.messages import Edge
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims, is_valid, macro_values
from advisor.records import Pairs, Problem

EDGE_ELEMENTS = 1 << 20
"""Edge problems that move more elements than this are left to `advisor verify`: a check must take milliseconds."""

EDGE_FLOPS = 1 << 26
"""The same for edge problems with more arithmetic than this."""

DEVICE_LIMITS = ((1 << 33, 1 << 24), (1 << 36, 1 << 28))
"""(flops, elements) of the further edge problem of a device, which takes milliseconds: the second where the first
leaves no n that is longer than a tile, or none that the choice takes."""

LONGEST_TILE = 128
"""Rows of the tiles that variants for devices use at most: beyond it there is a second one."""

BOUND_TO_SHAPE = ("triton", "torch")
"""Languages whose calls are compiled, or planned by a library, for each fixed shape apart: for up to a second."""


def edges(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> tuple[Edge, ...]:
    """The edge problems of a build on the way to `problem`, smallest n first.

    The spec's own edges as far as the same binary computes them, and its n at the shape of `problem`; none over the
    problem's own n, so that a variant that fails only at large n stays usable below. Other shapes are left to
    `advisor verify` where each would be compiled apart. On a device one more, see `_further`.
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
    kept += [edge for edge in _further(spec, variant, problem, knobs) if edge not in kept]
    return tuple(
        Edge(edge, entry_dims(spec, variant, edge, knobs), draw)
        for edge in sorted(kept, key=lambda e: e.n)
        for draw in spec.draws
    )


def _further(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> tuple[Problem, ...]:
    """On a device, a problem of the same shape with an odd n: tiles that are full, then one that is not.

    Shapes that are served are too large for the limits above, so that a choice would be timed there after no edge at
    all. Every choice of a problem gets it from the same two, whose operands and references are made once.
    """
    if variant.language not in GPU_LANGUAGES:
        return ()
    listed = [_largest_odd(spec, problem, *limits) for limits in DEVICE_LIMITS]
    able = [one for one in listed if one and one.n < problem.n and is_valid(variant, one, knobs)]
    macros = macro_values(variant, problem, knobs)
    able = [one for one in able if macro_values(variant, one, knobs) == macros]
    return tuple([*(one for one in able if one.n > LONGEST_TILE), *reversed(able)][:1])


def _largest_odd(spec: KernelSpec, problem: Problem, flops: int, elements: int) -> Problem | None:
    """The problem at its largest odd n within these limits; None where there is none."""

    def is_over(n: int) -> bool:
        one = problem._replace(n=n)
        return spec.flops(one) > flops or sum(spec.elements(one)) > elements

    most = bisect_right(range(1, problem.n + 1), False, key=is_over)
    return problem._replace(n=(most - 1) | 1, regime="warm") if most else None
