"""What the pool and a worker of a device say to each other, beside the Phases and Replies of all workers."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from advisor.codec import from_json, loads, to_json
from advisor.errors import BadInput
from advisor.kernels.gpu.geometry import Geometry
from advisor.records import Pairs, Problem

COMPILERS = 8
"""CUDA programs that a worker compiles at a time."""


class Hello(NamedTuple):
    """The first line: where the spec is, the seed of inputs, the device's UUID for its clocks."""

    spec_path: str
    seed: int
    uuid: str


class Program(NamedTuple):
    """What is compiled: source file with its digest, language, entry, compiler options (CUDA); its arithmetic.

    `then`: further entries of a CUDA file, launched after `symbol` in this order.
    """

    path: str
    source_hash: str
    language: str
    symbol: str
    options: tuple[str, ...] = ()
    arithmetic: str = "real"
    then: tuple[str, ...] = ()


class Case(NamedTuple):
    """One problem for a program: the draw of its inputs, dims and knobs, and the launch of a CUDA program."""

    problem: Problem
    draw: str
    dims: tuple[int, ...]
    knobs: Pairs
    geometry: Geometry | None = None


class Trial(NamedTuple):
    """One measurement; `samples` 0 asks for the check alone.

    Attributes:
        program: what is compiled.
        case: what is timed.
        checks: further cases that must be right first: edge problems, other draws.
        sets: sets of operands that the calls rotate through (1: warm).
        samples, sample_s, give_up_ns: see executor.Ask.
    """

    program: Program
    case: Case
    checks: tuple[Case, ...]
    sets: int
    samples: int
    sample_s: float
    give_up_ns: float | None


class Compile(NamedTuple):
    """Programs to compile ahead; the reply's `reason` counts those that failed, one line each.

    `problem`: one that will be asked for, so that what checking it takes is compiled too.
    """

    programs: tuple[Program, ...]
    problem: Problem | None = None


_KINDS: dict[str, Any] = {"hello": Hello, "trial": Trial, "compile": Compile}


def encode(message: Any) -> bytes:
    """One line of a message to a worker, the newline included."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(message, cls))
    return json.dumps({kind: to_json(message)}, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The message of a line.

    Raises:
        BadInput: not a message to a worker.
    """
    data = loads(line.decode(errors="replace"), "a message")
    kind = next(iter(data), "") if isinstance(data, dict) else ""
    if kind not in _KINDS or not isinstance(data, dict):
        raise BadInput("a message to a worker must be known", got=kind, allowed=", ".join(_KINDS))
    return from_json(_KINDS[kind], data[kind], "message")
