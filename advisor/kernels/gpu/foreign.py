"""Calls of Python that are somebody else's: Triton's and a library's. Made ready, held to the memory there is, and what
they return copied into the outputs, as a server would use it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from advisor.kernels.gpu.driver import Call, DeviceError, Driver
from advisor.kernels.gpu.messages import Case, Program
from advisor.kernels.gpu.operands import Block
from advisor.kernels.pycall import CallFailed, Entry, guarded
from advisor.kernels.spec import KernelSpec
from advisor.records import Problem

FULL = ("OutOfMemoryError", "out of memory", "ALLOC_FAILED")
"""Words of PyTorch's errors for a device that is full, which are no MemoryErrors of Python's: the class that its
allocator raises, the driver's text, and the status of cuBLAS and its like."""


def prepared(driver: Driver, spec: KernelSpec, entry: Entry, case: Case, group: Sequence[Block]) -> Call:
    """A call on these operands.

    Raises:
        MemoryError: the device has not the room that the variant says a call takes.
        CallFailed: a function of the variant's raised, or PyTorch did.
    """
    types = spec.types(case.problem)
    tensors = [_guarded(driver.tensor, one.data, types[name]) for name, one in zip(spec.buffers, group, strict=True)]
    _exact()
    need = int(_guarded(entry.workspace, tensors, case.dims, dict(case.knobs)))
    room = driver.room_bytes()
    if need > room:
        raise MemoryError(f"a call takes {need} bytes, {room} are free")
    call: Call = _guarded(entry.prepare, tensors, case.dims, dict(case.knobs))
    return call


def _exact() -> None:
    """PyTorch's float32 products as IEEE's, whatever the variant before left: tf32 may pass where n is large."""
    backends = getattr(sys.modules.get("torch"), "backends", None)
    if backends is not None:
        backends.cuda.matmul.allow_tf32 = False
        backends.cudnn.allow_tf32 = False


def run(program: Program, do: Callable[..., Any], *arguments: Any) -> Any:
    """What a call of a program, or a step of the driver's that makes calls of it or replays them, returns.

    Raises:
        CallFailed, MemoryError: what somebody else's Python raised.
        DeviceError: passed on.
    """
    return do(*arguments) if program.language == "cuda" else _guarded(do, *arguments)


def keep(driver: Driver, spec: KernelSpec, result: Any, group: Sequence[Block], problem: Problem) -> None:
    """Copy what a call returned into the outputs; None: it wrote them itself.

    Raises:
        CallFailed: it does not fit.
        MemoryError: nor into the device.
    """
    if result is None:
        return
    first = len(spec.buffers) - len(spec.written)
    results = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(spec.written):
        raise CallFailed(f"returned {len(results)} results where there are {len(spec.written)} outputs")
    types = spec.types(problem)
    for one, name, target in zip(results, spec.written, group[first:], strict=True):
        tensor = _guarded(driver.tensor, target.data, types[name])
        _guarded(_copy, tensor, one)


def _copy(tensor: Any, result: Any) -> None:
    tensor.copy_(result.reshape(tensor.shape))


def _guarded(do: Any, *arguments: Any) -> Any:
    try:
        return guarded(do, *arguments)
    except CallFailed as failed:
        if isinstance(failed.__cause__, DeviceError):
            raise failed.__cause__ from None
        if any(words in str(failed) for words in FULL):
            raise MemoryError(str(failed)) from failed
        raise
