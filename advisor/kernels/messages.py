"""What the pool and a bench worker say to each other: records, one JSON line each. Never a pickle.

Pool to worker: a Hello, then Trials. Worker to pool: Phases while it works, then one Reply a Trial.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from advisor.codec import from_json, loads, to_json
from advisor.kernels.numa import Where
from advisor.records import Pairs, Problem


class Hello(NamedTuple):
    """The first line to a worker: where the kernel's spec is defined, the seed of its inputs.

    `library`: what the worker imports before anything else, so that the frame joins the OpenMP runtime that the library
    brought along; empty in a worker for compiled variants. `shelf`: the folder where workers share inputs and
    references; empty: they do not.
    """

    spec_path: str
    seed: int
    library: str = ""
    shelf: str = ""


class Edge(NamedTuple):
    """A small problem that a build must get right before it is timed, with the dims for the entry.

    `draw`: what its inputs are drawn from, see KernelSpec.
    """

    problem: Problem
    dims: tuple[int, ...]
    draw: str = "normal"


class Binary(NamedTuple):
    """A compiled variant and what must be found inside it; `real`: bytes of ADV_REAL, value of ADV_DTYPE.

    For a variant in Python nothing is compiled and `path` is empty; `source` is its file, `source_hash` its digest.
    """

    path: str
    symbol: str
    key: str
    macros: tuple[int, ...]
    real: tuple[int, ...]
    source: str = ""
    source_hash: str = ""


class Trial(NamedTuple):
    """One measurement for a worker; `samples` 0 asks for the verification alone.

    Attributes:
        cpus: the CPU of each thread, None for a team that is not pinned and may use all of `mask`.
        sets: sets of operands to rotate through (1: cache warm).
        own_pages: operands must have been touched first by this very team (machines with several NUMA nodes).
        scratch_bytes: the most that the variant's workspace may take; None: unknown, no limit.
        draw: what the problem's inputs are drawn from, see KernelSpec.
        memory: on which nodes the pages of operands and scratch lie.
    """

    problem: Problem
    dims: tuple[int, ...]
    binary: Binary
    threads: int
    cpus: tuple[int, ...] | None
    mask: tuple[int, ...]
    edges: tuple[Edge, ...]
    samples: int
    sample_s: float
    give_up_ns: float | None
    quiet: bool
    sets: int
    own_pages: bool
    scratch_bytes: int | None
    draw: str = "normal"
    memory: Where = Where("default", ())


class Reply(NamedTuple):
    """The end of a trial. `sound`: the worker may go on; a worker that is not is replaced."""

    status: str
    reason: str = ""
    samples_ns: tuple[float, ...] = ()
    error: float | None = None
    tolerance: float | None = None
    threads_observed: int | None = None
    kernel_s: float = 0.0
    conditions: Pairs = ()
    sound: bool = True


class Phase(NamedTuple):
    """What the worker does now: `ready` after its start, `inputs`, `run`."""

    phase: str


_KINDS: dict[str, Any] = {"hello": Hello, "trial": Trial, "reply": Reply, "phase": Phase}


def encode(message: Any) -> bytes:
    """One line of a message, the newline included."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(message, cls))
    return json.dumps({kind: to_json(message)}, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The message of a line.

    Raises:
        BadInput: not a message.
    """
    data = loads(line.decode(errors="replace"), "a message")
    kind = next(iter(data), "") if isinstance(data, dict) else ""
    return from_json(_KINDS.get(kind, Phase), data.get(kind) if isinstance(data, dict) else data, "message")
