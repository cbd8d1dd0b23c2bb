"""A compiled variant inside a bench worker: loaded, checked to be the one asked for, called through the frame."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.errors import BuildError
from advisor.kernels import pycall
from advisor.kernels.messages import Binary
from advisor.kernels.operands import Block, Operands, block

_RUNTIME = re.compile(r"/(lib(?:gomp|omp|iomp5))\b[^/]*\.so[^/]*$", re.M)


class KernelFailed(Exception):
    """The entry returned an error code. Never leaves the worker: it becomes a status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the entry returned error code {code}")
        self.code = code


class Loaded(NamedTuple):
    """The functions of a library. `binary` is what it was checked against.

    `entry` and `workspace` are the variant's, or None where it is in Python; then `call` has them.
    """

    binary: Binary
    entry: Any
    workspace: Any
    pin: Any
    team: Any
    touch: Any
    time: Any
    call: pycall.Entry | None = None


class FrameTrial(ctypes.Structure):
    """advisor_trial of frame/advisor.h."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("sets", ctypes.c_void_p),
        ("set_count", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("dims", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("calls", ctypes.c_int64),
    )


def load(binary: Binary) -> Loaded:
    """Load a library and check its key, its macros and its types.

    Raises:
        BuildError: it cannot be loaded, or it is not what was asked for (a source that redefines a macro, for example).
    """
    try:
        library = ctypes.CDLL(binary.path)
        entry, workspace = (None, None) if binary.source else _functions(library, binary.symbol)
        frame = [getattr(library, f"advisor_{name}") for name in ("pin", "team", "touch", "time")]
        found = _contents(library, binary)
    except (OSError, AttributeError, ValueError) as error:
        raise BuildError(
            "a variant's library must load", got=str(error), next_step="see docs/add-a-variant.md"
        ) from error
    wanted = (binary.key, binary.macros, binary.real)
    if found != wanted:
        raise BuildError("the library must be the one that was asked for", got=found, allowed=str(wanted))
    frame[3].restype = ctypes.c_int64
    if not binary.source:
        return Loaded(binary, entry, workspace, *frame)
    runtimes = openmp_runtimes()
    if len(runtimes) > 1:  # placements would be applied to a team that the library does not use
        raise BuildError("a library and the frame must share one OpenMP runtime", got=", ".join(runtimes))
    return Loaded(binary, entry, workspace, *frame)._replace(call=pycall.load(binary))


def _functions(library: ctypes.CDLL, symbol: str) -> tuple[Any, Any]:
    """The variant's entry, and the function that tells its workspace."""
    workspace = getattr(library, f"{symbol}_workspace")
    workspace.restype = ctypes.c_int64
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p), workspace


def _contents(library: ctypes.CDLL, binary: Binary) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    key = (ctypes.c_char * len(binary.key)).in_dll(library, "advisor_build_key").value.decode(errors="replace")
    values = (ctypes.c_int64 * (len(binary.macros) + 1)).in_dll(library, "advisor_macro_values")
    real = (ctypes.c_int64 * 2).in_dll(library, "advisor_real")
    return key, tuple(values)[:-1], tuple(real)


def openmp_runtimes() -> tuple[str, ...]:
    """Names of the OpenMP runtimes in this process: more than one means that two teams compete for the CPUs.

    Two copies of one runtime, from two files, are two runtimes.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            found = [_RUNTIME.search(line) for line in file]
    except OSError:
        return ()
    files = {match.string.split(maxsplit=5)[5].strip(): match[1] for match in found if match}
    return tuple(sorted(files.values()))


def _dims(dims: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(1, len(dims)))(*dims)


def workspace_bytes(library: Loaded, operands: Operands, dims: tuple[int, ...], threads: int) -> int:
    """Bytes of scratch the entry wants, or that a library allocates; negative means the variant is broken."""
    if library.call is not None:
        return pycall.workspace_bytes(library.call, operands, dims, threads)
    return int(library.workspace(_dims(dims), threads))


def scratch(size: int) -> Block:
    """Fresh scratch, aligned to a page, canaries around it."""
    return block((size,), np.uint8)


def pin(library: Loaded, threads: int, cpus: Sequence[int] | None, mask: Sequence[int]) -> int:
    """Bind every thread of the team; returns how many could not be bound."""
    own = None if cpus is None else (ctypes.c_int * len(cpus))(*cpus)
    return int(library.pin(own, threads, (ctypes.c_int * len(mask))(*mask), len(mask)))


def team(library: Loaded, threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Thread ids of the team that runs now, and the CPU each is on."""
    tids, cpus = (ctypes.c_int64 * threads)(), (ctypes.c_int64 * threads)()
    count = library.team(threads, tids, cpus)
    return tuple(tids)[:count], tuple(cpus)[:count]


def touch(library: Loaded, blocks: Sequence[Block], threads: int) -> None:
    """Let the team write to every page of these blocks first."""
    addresses = (ctypes.c_void_p * len(blocks))(*(one.address for one in blocks))
    sizes = (ctypes.c_int64 * len(blocks))(*(one.data.nbytes for one in blocks))
    library.touch(addresses, sizes, len(blocks), threads)


class Runner:
    """Runs calls of one entry on one set of operands; remembers which set comes next."""

    def __init__(self, library: Loaded, operands: Operands, dims: Sequence[int], space: Block, threads: int) -> None:
        self._library = library
        self._kept = (operands, _dims(dims), space)  # the structure holds bare addresses
        self._trial = FrameTrial(
            library.entry.value,
            ctypes.addressof(operands.table),
            len(operands.sets),
            0,
            ctypes.addressof(self._kept[1]),
            space.address,
            threads,
            1,
        )

    def run(self, calls: int) -> int:
        """Run so many calls; returns the nanoseconds they took.

        Raises:
            KernelFailed: the entry returned an error code.
        """
        code = ctypes.c_int(0)
        self._trial.calls = calls
        elapsed = int(self._library.time(ctypes.byref(self._trial), ctypes.byref(code)))
        self._trial.first = (self._trial.first + calls) % self._trial.set_count
        if elapsed < 0:
            raise KernelFailed(code.value)
        return elapsed

    @property
    def last_set(self) -> int:
        """The set that the last call used."""
        return int((self._trial.first - 1) % self._trial.set_count)


def runner(
    library: Loaded, operands: Operands, dims: tuple[int, ...], space: Block, threads: int
) -> Runner | pycall.PythonRunner:
    """What runs the calls of a variant.

    Raises:
        CallFailed: a variant in Python could not prepare its call.
    """
    if library.call is not None:
        return pycall.PythonRunner(library.call, operands, dims, threads)
    return Runner(library, operands, dims, space, threads)
