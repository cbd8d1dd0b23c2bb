"""What the decode tests share: build a variant, run it once in this process, judge it against the DNF."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from advisor.kernels.build import build
from advisor.kernels.compilers import compilers
from advisor.kernels.decode.spec import SPEC
from advisor.kernels.fortran import fortran_compilers
from advisor.kernels.judge import relative_error
from advisor.kernels.spec import STORAGE
from advisor.kernels.variant import Variant, entry_dims, knob_sets, variants
from advisor.records import Build, Pairs, Problem

needs_compiler = pytest.mark.skipif(not compilers(), reason="no C compiler with OpenMP here")

CANARY = 0x5A
CANARY_BYTES = 4096


class Case(NamedTuple):
    """One run: which variant, on what, with which knobs, how many threads, and how it was compiled."""

    variant: Variant
    problem: Problem
    knobs: Pairs
    threads: int
    flags: str = "native"


@functools.cache
def variant(name: str) -> Variant:
    """The decode variant of that name."""
    return {one.name: one for one in variants("decode")}[name]


def default_knobs(one: Variant, problem: Problem) -> Pairs | None:
    """The default knobs where they are valid, else the first valid ones, else None."""
    sets = knob_sets(one, problem)
    return one.defaults if one.defaults in sets else next(iter(sets), None)


@functools.cache
def _library(one: Variant, knobs: Pairs, problem: Problem, flags: str) -> ctypes.CDLL:
    tool = fortran_compilers()[0] if one.language == "fortran" else compilers()[0]
    made = Build(one.name, one.source_hash, knobs, tool.name, flags)
    return ctypes.CDLL(build(one, made, problem).path)


def _library_of(case: Case) -> ctypes.CDLL:
    """The library of a case, the same one whatever n and the run knobs are."""
    one, problem, knobs, _, flags = case
    built = tuple(pair for pair in knobs if pair[0] in dict(one.build_knobs))
    rest = tuple((knob, values[0]) for knob, values in one.run_knobs)
    return _library(one, built + rest, problem._replace(n=1, regime="warm"), flags)


def compile_ahead(cases: Iterable[Case]) -> None:
    """Compile the libraries of some cases side by side; a single one of them would leave all other CPUs idle."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_library_of, cases))


def run(case: Case, inputs: dict[str, Any]) -> Any:
    """The output of one call. Output and scratch start as NaN and end with canaries that must stand.

    One OpenMP runtime only: the libraries of the first compiler of each language, gcc and gfortran where they are here.
    """
    one, problem, knobs, threads, _ = case
    library = _library_of(case)
    values = entry_dims(SPEC, one, problem, knobs)
    dims = (ctypes.c_int64 * len(values))(*values)
    size = getattr(library, f"{one.symbol}_workspace")
    size.restype = ctypes.c_int64
    need = size(dims, threads)
    scratch = np.full(need + CANARY_BYTES + 64, 0xFF, np.uint8)  # all ones are a NaN
    start = -scratch.ctypes.data % 64
    scratch[start + need :] = CANARY
    out = np.full(SPEC.shapes(problem)["out"], np.nan, STORAGE[SPEC.types(problem)["out"]])
    arrays = [*(inputs[name] for name in ("q", "k", "v")), out]
    buffers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    code = getattr(library, one.symbol)(buffers, dims, ctypes.c_void_p(scratch.ctypes.data + start), threads)
    assert code == 0
    assert (scratch[start + need :] == CANARY).all()
    return out


def wrong(case: Case, inputs: dict[str, Any], expected: Any = None) -> str:
    """Why one call's output is wrong; empty where its error is within the tolerance."""
    expected = SPEC.reference(case.problem, inputs)["out"] if expected is None else expected
    error = relative_error(run(case, inputs), expected.values)
    return "" if error <= expected.tolerance else f"{error} > {expected.tolerance} in {case}"
