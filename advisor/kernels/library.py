"""A variant inside a bench worker: loaded, checked to be the one asked for, called through its frame."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from advisor.errors import BuildError
from advisor.kernels import gomp, pycall
from advisor.kernels.messages import Binary
from advisor.kernels.operands import Block, Operands, block


class KernelFailed(Exception):
    """The entry returned an error code. Never leaves the worker: it becomes a status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the entry returned error code {code}")
        self.code = code


class Frame(Protocol):
    """What is done with the team that will run a variant: by frame/frame.c, or by gomp.py for a library call."""

    def pin(self, threads: int, cpus: Sequence[int] | None, mask: Sequence[int]) -> int:
        """Bind thread i to cpus[i], or every thread to the mask where cpus is None; returns how many could not be."""
        ...

    def team(self, threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Thread ids of the team that runs now, and the CPU each is on."""
        ...

    def touch(self, spans: Sequence[tuple[int, int]], threads: int) -> None:
        """Let the team write to every page of these (address, bytes) first."""
        ...


class Compiled(NamedTuple):
    """The functions of a compiled library: the variant's entry and workspace, and the frame's clock around it.

    `prepared` and `prepare`: how many bytes a variant keeps of constant inputs that it rearranges once, and what does
    that; None where it takes all inputs as they are.
    """

    entry: Any
    workspace: Any
    time: Any
    prepared: Any = None
    prepare: Any = None


class Loaded(NamedTuple):
    """A variant that can be called. `binary` is what it was checked against; `call` is its code: compiled or Python."""

    binary: Binary
    frame: Frame
    call: Compiled | pycall.Entry


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


class CompiledFrame:
    """The frame that was compiled into a library; see frame/advisor.h."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pin, self._team, self._touch = (getattr(library, f"advisor_{name}") for name in ("pin", "team", "touch"))

    def pin(self, threads: int, cpus: Sequence[int] | None, mask: Sequence[int]) -> int:
        """See Frame."""
        own = None if cpus is None else (ctypes.c_int * len(cpus))(*cpus)
        return int(self._pin(own, threads, (ctypes.c_int * len(mask))(*mask), len(mask)))

    def team(self, threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """See Frame."""
        tids, cpus = (ctypes.c_int64 * threads)(), (ctypes.c_int64 * threads)()
        count = self._team(threads, tids, cpus)
        return tuple(tids)[:count], tuple(cpus)[:count]

    def touch(self, spans: Sequence[tuple[int, int]], threads: int) -> None:
        """See Frame."""
        addresses = (ctypes.c_void_p * len(spans))(*(address for address, _ in spans))
        sizes = (ctypes.c_int64 * len(spans))(*(size for _, size in spans))
        self._touch(addresses, sizes, len(spans), threads)


def load(binary: Binary) -> Loaded:
    """Load a variant: a compiled one with its key, its macros and its types checked, one in Python with its digest.

    Raises:
        BuildError: it cannot be loaded, or it is not what was asked for (a source that redefines a macro, for example).
    """
    if binary.source:
        call = pycall.load(binary)  # first: what it imports may bring OpenMP runtimes along
        return Loaded(binary, gomp.load(), call)
    try:
        library = ctypes.CDLL(binary.path)
        compiled, frame = _functions(library, binary.symbol), CompiledFrame(library)
        found = _contents(library, binary)
    except (OSError, AttributeError, ValueError) as error:
        raise BuildError(
            "a variant's library must load", got=str(error), next_step="see docs/add-a-variant.md"
        ) from error
    wanted = (binary.key, binary.macros, binary.real)
    if found != wanted:
        raise BuildError("the library must be the one that was asked for", got=found, allowed=str(wanted))
    return Loaded(binary, frame, compiled)


def _functions(library: ctypes.CDLL, symbol: str) -> Compiled:
    workspace, clock = getattr(library, f"{symbol}_workspace"), library.advisor_time
    workspace.restype = clock.restype = ctypes.c_int64
    compiled = Compiled(ctypes.cast(getattr(library, symbol), ctypes.c_void_p), workspace, clock)
    if not hasattr(library, f"{symbol}_prepare"):
        return compiled
    prepared = getattr(library, f"{symbol}_prepared")
    prepared.restype = ctypes.c_int64
    return compiled._replace(prepared=prepared, prepare=getattr(library, f"{symbol}_prepare"))


def _contents(library: ctypes.CDLL, binary: Binary) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    key = (ctypes.c_char * len(binary.key)).in_dll(library, "advisor_build_key").value.decode(errors="replace")
    values = (ctypes.c_int64 * (len(binary.macros) + 1)).in_dll(library, "advisor_macro_values")
    real = (ctypes.c_int64 * 2).in_dll(library, "advisor_real")
    return key, tuple(values)[:-1], tuple(real)


def openmp_runtimes() -> tuple[str, ...]:
    """Names of the OpenMP runtimes in this process: more than one means that two teams compete for the CPUs."""
    return tuple(sorted(name for _, name in gomp.files()))


def _dims(dims: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(1, len(dims)))(*dims)


def workspace_bytes(library: Loaded, operands: Operands, dims: tuple[int, ...], threads: int) -> int:
    """Bytes of scratch the entry wants, or that a library allocates; negative means the variant is broken."""
    if isinstance(library.call, pycall.Entry):
        return pycall.workspace_bytes(library.call, operands, dims, threads)
    return int(library.call.workspace(_dims(dims), threads))


def prepared_bytes(library: Loaded, dims: tuple[int, ...]) -> int:
    """Bytes that a variant keeps of each set of operands, beside its scratch; 0 where it prepares nothing."""
    if isinstance(library.call, pycall.Entry) or library.call.prepared is None:
        return 0
    return int(library.call.prepared(_dims(dims)))


def scratch(size: int) -> Block:
    """Fresh scratch, aligned to a page, canaries around it."""
    return block((size,), np.uint8)


def pin(library: Loaded, threads: int, cpus: Sequence[int] | None, mask: Sequence[int]) -> int:
    """Bind every thread of the team; returns how many could not be bound."""
    return library.frame.pin(threads, cpus, mask)


def team(library: Loaded, threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Thread ids of the team that runs now, and the CPU each is on."""
    return library.frame.team(threads)


def touch(library: Loaded, blocks: Sequence[Block], threads: int) -> None:
    """Let the team write to every page of these blocks first."""
    library.frame.touch([(one.address, one.data.nbytes) for one in blocks], threads)


class Runner:
    """Runs calls of one entry on sets of operands; remembers which set comes next.

    `spaces`: the scratch, then, where the variant prepares inputs, one block a set for what it makes of them; the entry
    finds that block behind its buffers. It is made here, before any clock runs.
    """

    def __init__(
        self, compiled: Compiled, operands: Operands, dims: Sequence[int], spaces: Sequence[Block], threads: int
    ) -> None:
        self._time = compiled.time
        space, *own = spaces
        rows = [with_block(row, one) for row, one in zip(operands.pointers, own, strict=True)] if own else ()
        table = (ctypes.c_void_p * len(rows))(*map(ctypes.addressof, rows)) if rows else operands.table
        self._kept = (operands, _dims(dims), spaces, rows, table)  # the structure holds bare addresses
        for row in rows:
            code = compiled.prepare(row, self._kept[1], threads)
            if code:
                raise KernelFailed(code)
        self._trial = FrameTrial(
            compiled.entry.value,
            ctypes.addressof(table),
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
        elapsed = int(self._time(ctypes.byref(self._trial), ctypes.byref(code)))
        self._trial.first = (self._trial.first + calls) % self._trial.set_count
        if elapsed < 0:
            raise KernelFailed(code.value)
        return elapsed

    @property
    def last_set(self) -> int:
        """The set that the last call used."""
        return int((self._trial.first - 1) % self._trial.set_count)


def with_block(pointers: Any, block: Block) -> Any:
    """An array of pointers with one more at its end."""
    return (ctypes.c_void_p * (len(pointers) + 1))(*pointers, block.address)


def runner(
    library: Loaded, operands: Operands, dims: tuple[int, ...], spaces: Sequence[Block], threads: int
) -> Runner | pycall.PythonRunner:
    """What runs the calls of a variant; `spaces` as for Runner.

    Raises:
        CallFailed: a variant in Python could not prepare its call.
        KernelFailed: a compiled one returned an error code when it prepared its inputs.
    """
    if isinstance(library.call, pycall.Entry):
        return pycall.PythonRunner(library.call, operands, dims, threads)
    return Runner(library.call, operands, dims, spaces, threads)
