"""Memory of a trial on a device: operands and scratch with canaries around them, sentinels in outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.kernels.operands import CANARY, POISON, SENTINELS
from advisor.kernels.spec import STORAGE, KernelSpec
from advisor.records import Problem

GUARD_BYTES = 512
"""Before and after the data: allocations of CUDA are aligned to 256, so the data is too."""

SUMMED = 1 << 14
"""Elements that the first step of a checksum adds up."""

_UNSIGNED: dict[int, Any] = {8: np.uint64, 4: np.uint32, 2: np.uint16}


class Block(NamedTuple):
    """Device memory. `whole` has the guards too, in bytes; `data` is what a variant sees."""

    whole: Any
    data: Any


def block(xp: Any, shape: tuple[int, ...], dtype: Any) -> Block:
    """Fresh memory for one array, guards filled. Raises MemoryError where there is no room."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    whole = xp.empty(size + 2 * GUARD_BYTES, np.uint8)
    whole[:GUARD_BYTES] = CANARY
    whole[GUARD_BYTES + size :] = CANARY
    return Block(whole, whole[GUARD_BYTES : GUARD_BYTES + size].view(dtype).reshape(shape))


def intact(found: Block) -> bool:
    """Whether the canaries on both sides still stand."""
    return all(bool((guard == CANARY).all()) for guard in _guards(found))


def all_intact(xp: Any, blocks: Sequence[Block]) -> bool:
    """The same of several blocks, of which a device is asked once: each answer is waited for."""
    return bool((xp.concatenate([guard for one in blocks for guard in _guards(one)]) == CANARY).all())


def _guards(found: Block) -> tuple[Any, Any]:
    return found.whole[:GUARD_BYTES], found.whole[found.whole.size - GUARD_BYTES :]


def mark(found: Block) -> None:
    """Fill an output with the sentinel."""
    size = found.data.itemsize
    found.data.view(_UNSIGNED[size])[...] = SENTINELS[size]


def unwritten(found: Block) -> int:
    """How many elements of an output still hold the sentinel."""
    size = found.data.itemsize
    return int((found.data.view(_UNSIGNED[size]) == SENTINELS[size]).sum())


def scratch(xp: Any, size: int, zeros: int) -> Block:
    """A workspace: zeros where they were promised, NaN elsewhere, so that nobody relies on zeros."""
    found = block(xp, (size,), np.uint8)
    found.data[:zeros] = 0
    found.data[zeros:] = POISON
    return found


def make(
    xp: Any, spec: KernelSpec, problem: Problem, inputs: dict[str, Any], sets: int
) -> tuple[tuple[Block, ...], ...]:
    """Sets of blocks in the order of the spec's buffers, the inputs copied into each."""
    shapes, types = spec.shapes(problem), spec.types(problem)
    made = tuple(tuple(block(xp, shapes[name], STORAGE[types[name]]) for name in spec.buffers) for _ in range(sets))
    for group in made:
        for name, one in zip(spec.buffers, group, strict=True):
            if name in inputs:
                one.data[...] = inputs[name]
    return made


def checksums(xp: Any, blocks: Sequence[Block]) -> Any:
    """Sums over the bits of inputs, an array of one number each: on a device nothing protects them from being written.

    In two steps: a reduction to one number runs on one block of threads, for seconds where a cache has gigabytes.
    """
    return xp.concatenate([_checksum(one) for one in blocks])


def _checksum(found: Block) -> Any:
    bits = found.data.view(_UNSIGNED[found.data.itemsize]).reshape(-1)
    whole = bits.size // SUMMED * SUMMED
    rest = bits[whole:].sum(dtype=np.uint64, keepdims=True)
    if not whole:
        return rest
    parts = bits[:whole].reshape(-1, SUMMED).sum(axis=1, dtype=np.uint64)
    return rest + parts.sum(dtype=np.uint64, keepdims=True)


def rehearse(xp: Any, group: tuple[Block, ...]) -> None:
    """Do once all that checks do with operands, and with a workspace."""
    space = scratch(xp, 2, 1)
    for one in group:
        mark(one)
        unwritten(one)
    all_intact(xp, (*group, space))
    bool((checksums(xp, group) != checksums(xp, group)).any())
    bool(space.data[:1].any())
