"""Calls of Python that are somebody else's: Triton's and a library's. Made ready, held to the memory there is, and what
they return copied into the outputs, as a server would use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.kernels.gpu.driver import Call, Driver
from advisor.kernels.gpu.messages import Case, Program
from advisor.kernels.gpu.operands import Block
from advisor.kernels.pycall import CallFailed, Entry, guarded
from advisor.kernels.spec import KernelSpec
from advisor.records import Problem

FULL = "OutOfMemoryError"
"""The class of PyTorch's error for a device that is full; it is no MemoryError of Python's."""


def prepared(driver: Driver, spec: KernelSpec, entry: Entry, case: Case, group: Sequence[Block]) -> Call:
    """A call on these operands.

    Raises:
        MemoryError: the device has not the room that the variant says a call takes.
        CallFailed: a function of the variant's raised.
    """
    types = spec.types(case.problem)
    tensors = [driver.tensor(one.data, types[name]) for name, one in zip(spec.buffers, group, strict=True)]
    need = int(guarded(entry.workspace, tensors, case.dims, dict(case.knobs)))
    room = driver.room_bytes()
    if need > room:
        raise MemoryError(f"a call takes {need} bytes, {room} are free")
    call: Call = _guarded(entry.prepare, tensors, case.dims, dict(case.knobs))
    return call


def run(program: Program, call: Call) -> Any:
    """The result of one call; what somebody else's Python raises becomes CallFailed, or MemoryError."""
    return call() if program.language == "cuda" else _guarded(call)


def keep(driver: Driver, spec: KernelSpec, result: Any, group: Sequence[Block], problem: Problem) -> None:
    """Copy what a call returned into the outputs; None: it wrote them itself.

    Raises:
        CallFailed: it does not fit.
    """
    if result is None:
        return
    first = len(spec.buffers) - len(spec.written)
    results = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(spec.written):
        raise CallFailed(f"returned {len(results)} results where there are {len(spec.written)} outputs")
    types = spec.types(problem)
    for one, name, target in zip(results, spec.written, group[first:], strict=True):
        tensor = driver.tensor(target.data, types[name])
        guarded(_copy, tensor, one)


def _copy(tensor: Any, result: Any) -> None:
    tensor.copy_(result.reshape(tensor.shape))


def _guarded(do: Any, *arguments: Any) -> Any:
    try:
        return guarded(do, *arguments)
    except CallFailed as failed:
        if type(failed.__cause__).__name__ == FULL:
            raise MemoryError(str(failed)) from failed
        raise
