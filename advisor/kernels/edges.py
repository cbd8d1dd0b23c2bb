"""Which small problems a build must get right before it is timed on a larger one."""

from __future__ import annotations

from advisor.kernels.messages import Edge
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims, is_valid, macro_values
from advisor.records import Pairs, Problem

EDGE_ELEMENTS = 1 << 20
"""Edge problems that move more elements than this are left to `advisor verify`: a check must take milliseconds."""

EDGE_FLOPS = 1 << 26
"""The same for edge problems with more arithmetic than this."""

BOUND_TO_SHAPE = ("triton", "torch")
"""Languages whose calls are compiled, or planned by a library, for each fixed shape apart: for up to a second."""


def edges(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> tuple[Edge, ...]:
    """The edge problems of a build on the way to `problem`, smallest n first.

    The spec's own edges as far as the same binary computes them, and its n at the shape of `problem`; none over the
    problem's own n, so that a variant that fails only at large n stays usable below. Other shapes are left to
    `advisor verify` where each would be compiled apart.
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
    return tuple(
        Edge(edge, entry_dims(spec, variant, edge, knobs), draw)
        for edge in sorted(kept, key=lambda e: e.n)
        for draw in spec.draws
    )
