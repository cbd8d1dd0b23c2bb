"""Memory of a trial: operands and scratch with canaries around them, sentinels in outputs, inputs write-protected.

Every block is memory of its own from the kernel, so that nobody has touched its pages before its team does (pages lie
on the node of the thread that touches them first), and so that inputs can be made read-only: a variant that writes to
its inputs is killed by a signal instead of spoiling them for the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.errors import AdvisorError
from advisor.kernels.spec import STORAGE, Array, KernelSpec
from advisor.records import Problem

GUARD_BYTES = 4096
"""A page before and after the data, so that the data starts on a page of its own."""

CANARY = 0xA5
POISON = 0xFF
"""What fills scratch before a check: NaN as floating point, -1 as integers; nobody may rely on zeros."""

HUGE_BYTES = 4 << 20
"""From this size on huge pages are asked for, as numpy does for its own arrays: callers' arrays have them too."""

SENTINELS = {8: np.uint64(0x7FF8_DEAD_BEEF_DEAD), 4: np.uint32(0x7FC0_DEAD), 2: np.uint16(0x7FED)}
"""Item bytes -> a NaN that no arithmetic makes: what stands in an output that was never written.
That of 16 bits is one in float16 and in bfloat16."""

_UNSIGNED: dict[int, Any] = {8: np.uint64, 4: np.uint32, 2: np.uint16}
_libc = ctypes.CDLL(None, use_errno=True)


class Block(NamedTuple):
    """Page-aligned memory. `whole` has the guards too; `data` is what the kernel sees; `address` is data's."""

    whole: Array
    data: Array
    address: int


class Operands(NamedTuple):
    """Sets of blocks of one problem, each in the order of the spec's buffers; `inputs` of them are inputs.

    `table` is the array of arrays of pointers that the frame takes; it keeps the pointers of every set.
    """

    problem: Problem
    sets: tuple[tuple[Block, ...], ...]
    inputs: int
    pointers: tuple[Any, ...]
    table: Any
    bytes: int


def block(shape: Sequence[int], dtype: Any) -> Block:
    """Fresh memory for one array, guards filled, data pages untouched.

    Raises:
        MemoryError: the kernel refuses that much.
    """
    kind = np.dtype(dtype)
    count = math.prod(shape)
    size = count * kind.itemsize
    try:
        memory = mmap.mmap(-1, size + 2 * GUARD_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no room for {size} bytes") from error
    if size >= HUGE_BYTES:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    whole[:GUARD_BYTES] = CANARY
    whole[GUARD_BYTES + size :] = CANARY
    data = np.frombuffer(memory, dtype=kind, count=count, offset=GUARD_BYTES).reshape(tuple(shape))
    return Block(whole, data, whole.ctypes.data + GUARD_BYTES)


def span(found: Block) -> tuple[int, int]:
    """First address and bytes of a block, guards included."""
    return found.address - GUARD_BYTES, found.whole.nbytes


def intact(found: Block) -> bool:
    """Whether the canaries on both sides still stand."""
    end = GUARD_BYTES + found.data.nbytes
    return bool((found.whole[:GUARD_BYTES] == CANARY).all() and (found.whole[end:] == CANARY).all())


def protect(found: Block) -> None:
    """Make a block read-only: who writes to it gets SIGSEGV."""
    start = found.address - GUARD_BYTES
    if _libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(found.whole.nbytes), ctypes.c_int(mmap.PROT_READ)):
        raise AdvisorError("inputs must be protectable", got=ctypes.get_errno())


def mark(found: Block) -> None:
    """Fill an output with the sentinel."""
    size = found.data.itemsize
    found.data.view(_UNSIGNED[size])[...] = SENTINELS[size]


def unwritten(found: Block) -> int:
    """How many elements of an output still hold the sentinel."""
    size = found.data.itemsize
    return int(np.count_nonzero(found.data.view(_UNSIGNED[size]) == SENTINELS[size]))


Touch = Callable[[Sequence[Block]], None]


def make(
    spec: KernelSpec, problem: Problem, inputs: dict[str, Array], sets: int = 1, touch: Touch | None = None
) -> Operands:
    """Operands with these inputs.

    Args:
        spec: for the order of buffers and the shapes of outputs.
        problem: one problem.
        inputs: arrays by name; they are copied.
        sets: how many equal sets.
        touch: called with all blocks before anything is written to them.
    """
    shapes, types = spec.shapes(problem), spec.types(problem)
    made = tuple(tuple(block(shapes[name], STORAGE[types[name]]) for name in spec.buffers) for _ in range(sets))
    blocks = [one for group in made for one in group]
    if touch:
        touch(blocks)
    for group in made:
        for name, one in zip(spec.buffers, group, strict=True):
            if name in inputs:
                np.copyto(one.data, inputs[name])
                protect(one)
    pointers = tuple((ctypes.c_void_p * len(group))(*(one.address for one in group)) for group in made)
    table = (ctypes.c_void_p * sets)(*(ctypes.addressof(row) for row in pointers))
    return Operands(problem, made, len(inputs), pointers, table, sum(one.whole.nbytes for one in blocks))


def outputs(spec: KernelSpec, operands: Operands, index: int = 0) -> dict[str, Block]:
    """Output blocks of one set by name."""
    names = spec.buffers[operands.inputs :]
    return dict(zip(names, operands.sets[index][operands.inputs :], strict=True))


def inputs(spec: KernelSpec, operands: Operands) -> dict[str, Array]:
    """Input arrays (read-only) by name."""
    return {name: one.data for name, one in zip(spec.buffers[: operands.inputs], operands.sets[0], strict=False)}
