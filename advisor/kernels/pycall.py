"""A library variant inside a bench worker: a Python function that calls a library, timed by a loop in Python.

Results that a call returns are kept, and the last ones copied into the outputs after the clock has stopped: a server
uses what the library returned as it is, so the copy is not part of a call. Making and freeing results is.
"""

from __future__ import annotations

import importlib.abc
import math
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.errors import BuildError
from advisor.kernels.messages import Binary
from advisor.kernels.operands import Operands
from advisor.kernels.spec import Array
from advisor.sources import short_hash

Call = Callable[[], Any]
"""One call. Returns None when it wrote the outputs itself, else the results: an array or tensor an output, in order."""


class CallFailed(Exception):
    """The variant raised, or returned what cannot be its results. Never leaves the worker: it becomes a status."""


class Entry(NamedTuple):
    """The functions of a source: `prepare(buffers, dims, threads)` makes a Call, `workspace` tells its memory."""

    prepare: Callable[[Sequence[Array], tuple[int, ...], int], Call]
    workspace: Callable[[Sequence[Array], tuple[int, ...], int], int]


class _Source(importlib.abc.ExecutionLoader):
    """Loads a module from text that was read and checked: from the file, an old .pyc of it might be loaded."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text

    def get_source(self, fullname: str) -> str:
        """The text."""
        return self._text

    def get_filename(self, fullname: str) -> str:
        """Where it came from, for tracebacks."""
        return self._path


def load(binary: Binary) -> Entry:
    """Run a variant's source and take its functions.

    Raises:
        BuildError: it is not the source that was asked for, or it does not run.
    """
    try:
        with open(binary.source, "rb") as file:
            content = file.read()
        if short_hash(content) != binary.source_hash:
            raise BuildError("the source changed since it was read", got=binary.source, next_step="start again")
        module = types.ModuleType(f"advisor_variant_{binary.key}")
        _Source(binary.source, content.decode()).exec_module(module)
        return Entry(getattr(module, binary.symbol), getattr(module, f"{binary.symbol}_workspace"))
    except BuildError:
        raise
    except Exception as error:  # it is somebody else's program
        raise BuildError("a variant in Python must run", got=words(error), next_step=f"mend {binary.source}") from error


def words(error: Exception) -> str:
    """Class and first line of an error's text, on one line; the class alone where it has no text."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def guarded(do: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the variant's returns for these arguments.

    Raises:
        CallFailed: it raised.
        MemoryError: passed on.
    """
    try:
        return do(*arguments)
    except MemoryError:
        raise
    except Exception as error:  # it is somebody else's program
        raise CallFailed(words(error)) from error


def arrays(operands: Operands, index: int = 0) -> tuple[Array, ...]:
    """The arrays of one set; the pages of inputs are read-only."""
    return tuple(one.data for one in operands.sets[index])


def workspace_bytes(entry: Entry, operands: Operands, dims: tuple[int, ...], threads: int) -> int:
    """Bytes that a call allocates at most, as the variant says."""
    return int(guarded(entry.workspace, arrays(operands), dims, threads))


class PythonRunner:
    """Runs calls of a library on sets of operands; remembers which set comes next. See library.Runner."""

    def __init__(self, entry: Entry, operands: Operands, dims: tuple[int, ...], threads: int) -> None:
        sets = range(len(operands.sets))
        self._outputs = [arrays(operands, index)[operands.inputs :] for index in sets]
        self._calls = [guarded(entry.prepare, arrays(operands, index), dims, threads) for index in sets]
        self._first = 0

    def run(self, calls: int) -> int:
        """Run so many calls; returns the nanoseconds they took. The last results are in the outputs afterwards.

        Raises:
            CallFailed: the variant raised, or its results do not fit the outputs.
        """
        elapsed, result = guarded(self._loop, calls)
        if result is not None:
            _keep(result, self._outputs[self.last_set])
        return int(elapsed)

    def _loop(self, calls: int) -> tuple[int, Any]:
        functions, index, count, clock = self._calls, self._first, len(self._calls), time.perf_counter_ns
        result = None
        start = clock()
        for _ in range(calls):
            result = functions[index]()
            index += 1
            if index == count:
                index = 0
        elapsed = clock() - start
        self._first = index
        return elapsed, result

    @property
    def last_set(self) -> int:
        """The set that the last call used."""
        return (self._first - 1) % len(self._calls)


def _keep(result: Any, outputs: Sequence[Array]) -> None:
    """Copy results into the outputs; only the shape may differ, not the number of elements."""
    results = result if isinstance(result, tuple | list) else (result,)
    found = [guarded(np.asarray, one) for one in results]
    got, wanted = [one.size for one in found], [math.prod(one.shape) for one in outputs]
    if got != wanted:
        raise CallFailed(f"returned results of {got} elements where the outputs have {wanted}")
    for one, output in zip(found, outputs, strict=True):
        guarded(np.copyto, output, one.reshape(output.shape))
