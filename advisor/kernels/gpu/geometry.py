"""Launch geometry: what the expressions of a CUDA header come to for one problem and one set of knobs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from advisor.errors import BadInput
from advisor.kernels.build import REALS
from advisor.kernels.expressions import evaluate
from advisor.kernels.launches import Launch, Step
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims, knob_sets, macro_values, names
from advisor.records import Pairs, Problem

MOST_THREADS = 1024
"""Threads of a block at most. Source: CUDA C++ Programming Guide, technical specifications per compute capability."""

MOST_GRID = (2**31 - 1, 65535, 65535)
"""Extents of a grid at most. Source: as above."""


class Extent(NamedTuple):
    """What one kernel is launched with: three extents of its grid, threads and dynamic shared memory of a block."""

    grid: tuple[int, int, int]
    block: int
    shared_bytes: int


class Geometry(NamedTuple):
    """The launches of one call.

    Attributes:
        grid: three extents.
        block: threads of a block.
        shared_bytes: dynamic shared memory of a block.
        workspace_bytes: global scratch of the call.
        zero_bytes: bytes at its start that are zero before the call.
        numbers: what each entry takes after the pointers: dims, run knobs, derived values, each an int.
        then: further kernels, launched after the first in this order.
    """

    grid: tuple[int, int, int]
    block: int
    shared_bytes: int
    workspace_bytes: int
    zero_bytes: int
    numbers: tuple[int, ...]
    then: tuple[Extent, ...] = ()

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Those of every kernel that a call launches, in order."""
        return (Extent(self.grid, self.block, self.shared_bytes), *self.then)


def geometry(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> Geometry:
    """The launches of a CUDA variant.

    Args:
        spec: for the order of the dims.
        variant: one with a `launch`.
        problem: what is computed.
        knobs: one of the variant's knob sets.

    Raises:
        BadInput: an expression has no value here, or the header says what is no launch on any problem.
    """
    launch = variant.launch
    if launch is None:
        raise BadInput("a launch geometry is that of a CUDA variant", got=f"{variant.name} in {variant.language}")
    known = launch_names(variant, problem, knobs)
    values = [known[name] for name, _ in launch.derived]
    found = Geometry(
        *_extent(launch, known),
        workspace_bytes=evaluate(launch.workspace, known),
        zero_bytes=evaluate(launch.zeros, known),
        numbers=(*entry_dims(spec, variant, problem, knobs), *values),
        then=tuple(_extent(step, known) for step in launch.then),
    )
    _check(found, variant)
    return found


def _extent(step: Launch | Step, known: dict[str, int]) -> Extent:
    x, y, z = [*(evaluate(text, known) for text in step.grid), 1, 1][:3]
    return Extent((x, y, z), evaluate(step.block, known), evaluate(step.shared, known))


def launch_names(variant: Variant, problem: Problem, knobs: Pairs) -> dict[str, int]:
    """What expressions of a GPU variant may use: the shape, n, the knobs, the sizes of numbers, the derived values.

    Raises:
        BadInput: a derived value has none.
    """
    known = {**names(problem, knobs), "item_bytes": ITEM_BYTES[problem.dtype], "real_bytes": REALS[problem.dtype].size}
    for name, text in variant.launch.derived if variant.launch else ():
        known[name] = evaluate(text, known)
    return known


def check_header(spec: KernelSpec, variant: Variant, problems: Sequence[Problem]) -> None:
    """Evaluate all that a header says at some problems, so that one that lies is refused before anything is run.

    Raises:
        BadInput: naming the source and the expression.
    """
    for problem in problems:
        try:
            for knobs in knob_sets(variant, problem)[:1]:
                program(spec, variant, problem, knobs)
                for text in (variant.reads, variant.writes, variant.atomics):
                    evaluate(text, launch_names(variant, problem, knobs))
        except BadInput as error:
            raise BadInput(
                f"{os.path.basename(variant.path)}: the header's expressions must have a value at n = {problem.n}",
                got=str(error),
                next_step=f"edit {variant.path}",
            ) from error


def _check(found: Geometry, variant: Variant) -> None:
    sizes = 0 <= found.zero_bytes <= found.workspace_bytes
    extents = all(_is_possible(one) for one in found.extents)
    if not (extents and sizes and all(abs(v) < 2**31 for v in found.numbers)):
        raise BadInput(
            f"{variant.name}: a launch must be one that a device can make",
            got=found,
            allowed=f"grid of at least 1, block 1..{MOST_THREADS}, zeros within the workspace, numbers of 32 bits",
            next_step=f"edit the header of {variant.path}",
        )


def _is_possible(one: Extent) -> bool:
    return min(one.grid) >= 1 and 1 <= one.block <= MOST_THREADS and one.shared_bytes >= 0


def is_grid(one: Extent) -> bool:
    """Whether devices launch so many blocks; a batch of many heads may be more than one extent takes."""
    return all(extent <= most for extent, most in zip(one.grid, MOST_GRID, strict=True))


def program(spec: KernelSpec, variant: Variant, problem: Problem, knobs: Pairs) -> tuple[object, ...]:
    """What a choice really runs at this n: knob sets with equal programs are one choice."""
    if variant.launch is None:
        return variant.name, knobs
    found = geometry(spec, variant, problem, knobs)
    derived = found.numbers[len(spec.dims) + len(variant.run_knobs) :]
    return variant.name, macro_values(variant, problem, knobs), found._replace(numbers=derived)
