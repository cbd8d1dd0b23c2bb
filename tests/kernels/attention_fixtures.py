"""What the tests of attention forward, backward and fused share: build a variant, run it here, judge it."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from kernel_fixtures import here

from advisor.kernels import openblas
from advisor.kernels.build import build
from advisor.kernels.compilers import compilers
from advisor.kernels.judge import relative_error
from advisor.kernels.registry import spec
from advisor.kernels.spec import STORAGE, Array, Expected
from advisor.kernels.variant import Variant, entry_dims, for_machine, knob_sets, variants
from advisor.records import Build, Pairs, Problem

needs_compiler = pytest.mark.skipif(not compilers(), reason="no C compiler with OpenMP here")

CANARY = 0x5A
CANARY_BYTES = 4096
STACK_BYTES, THREAD_STACK_BYTES = 8 << 20, 1 << 20
"""What a program is usually given, and what one more thread of an engine may be left with."""

SHAPES = {
    "float32": (
        {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "causal": 0},
        {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "causal": 1},
        {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim": 7, "causal": 1},
    ),
    "float64": (
        {"batch": 1, "heads": 3, "kv_heads": 1, "head_dim": 80, "causal": 0},
        {"batch": 2, "heads": 2, "kv_heads": 1, "head_dim": 80, "causal": 1},
    ),
}
"""The paper's, causal ones with shared heads, an odd head_dim, one that no tile divides. Each head_dim is a build."""

RUNS = (("normal", 1), ("outlier", 2), ("normal", 3))
"""What a size of problem is checked with in turn: a draw and a team."""


class Case(NamedTuple):
    """One run: which kernel's variant, on what, with which knobs, how many threads."""

    kernel: str
    variant: Variant
    problem: Problem
    knobs: Pairs
    threads: int


@functools.cache
def variant(kernel: str, name: str) -> Variant:
    """The variant of that name."""
    return {one.name: one for one in variants(kernel)}[name]


def default_knobs(one: Variant, problem: Problem) -> Pairs | None:
    """The default knobs where they are valid, else the first valid ones, else None."""
    sets = knob_sets(one, problem)
    return one.defaults if one.defaults in sets else next(iter(sets), None)


@functools.cache
def library(one: Variant, knobs: Pairs, problem: Problem) -> str:
    """Path of the library of a variant for a shape and dtype."""
    tool = openblas.find().tool if one.libraries else compilers()[0]
    assert tool is not None
    return build(one, Build(one.name, one.source_hash, knobs, tool.name, "native"), problem).path


def library_of(case: Case) -> str:
    """The same for a case; run knobs and n make no other library."""
    one = case.variant
    built = tuple(pair for pair in case.knobs if pair[0] in dict(one.build_knobs))
    rest = tuple((knob, values[0]) for knob, values in one.run_knobs)
    return library(one, built + rest, case.problem._replace(n=1, regime="warm"))


def compile_ahead(cases: Iterable[Case]) -> None:
    """Compile the libraries of some cases side by side; a single one of them would leave all other CPUs idle."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(library_of, cases))


def run(case: Case, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of one call. Outputs and scratch start as NaN and end with canaries that must stand."""
    kernel, one, problem = spec(case.kernel), case.variant, case.problem
    loaded = ctypes.CDLL(library_of(case))
    values = entry_dims(kernel, one, problem, case.knobs)
    dims = (ctypes.c_int64 * len(values))(*values)
    size = getattr(loaded, f"{one.symbol}_workspace")
    size.restype = ctypes.c_int64
    need = size(dims, case.threads)
    scratch = np.full(need + CANARY_BYTES + 64, 0xFF, np.uint8)  # all ones are a NaN
    start = -scratch.ctypes.data % 64
    scratch[start + need :] = CANARY
    shapes, kind = kernel.shapes(problem), STORAGE[problem.dtype]
    outputs = {name: np.full(shapes[name], np.nan, kind) for name in kernel.written}
    arrays = [*(inputs[name] for name in kernel.buffers if name not in outputs), *outputs.values()]
    kept = prepared(loaded, one, dims) if one.prepares else ()
    pointers = [*(array.ctypes.data for array in arrays), *(address for address, _ in kept)]
    buffers = (ctypes.c_void_p * len(pointers))(*pointers)
    if kept:
        assert getattr(loaded, f"{one.symbol}_prepare")(buffers, dims, case.threads) == 0
    code = getattr(loaded, one.symbol)(buffers, dims, ctypes.c_void_p(scratch.ctypes.data + start), case.threads)
    assert code == 0
    assert (scratch[start + need :] == CANARY).all()
    assert all((end == CANARY).all() for _, end in kept)
    return outputs


def prepared(loaded: ctypes.CDLL, one: Variant, dims: Array) -> tuple[tuple[int, Array]]:
    """Room for what a variant prepares: its address, on a cache line, and the canaries behind it."""
    size = getattr(loaded, f"{one.symbol}_prepared")
    size.restype = ctypes.c_int64
    need = size(dims)
    room = np.full(need + CANARY_BYTES + 64, 0xFF, np.uint8)
    start = -room.ctypes.data % 64
    room[start + need :] = CANARY
    return ((room.ctypes.data + start, room[start + need :]),)


def worst(found: dict[str, Array], expected: dict[str, Expected]) -> float:
    """The largest error over its tolerance, over all outputs; infinite where anything is not finite."""
    ratios = []
    for name, (values, tolerance, rows, *_) in expected.items():
        output = found[name]
        if not np.isfinite(output).all():
            return float("inf")
        output = output if rows is None else output.reshape(-1, output.shape[-1])[rows]
        ratios.append(relative_error(output, values) / tolerance)
    return max(ratios)


def check(case: Case, draw: str = "normal", seed: int = 1) -> None:
    """One run is inside the tolerances."""
    kernel = spec(case.kernel)
    inputs = kernel.inputs(case.problem, seed, draw)
    found = worst(run(case, inputs), kernel.reference(case.problem, inputs))
    assert found <= 1, (found, case.problem, dict(case.knobs), case.threads, draw)


def tried_sets(one: Variant, problem: Problem) -> list[Pairs]:
    """All choices of knobs for this machine, and those of every third build that only another one is given."""
    (able,) = for_machine([one], here())
    own, every = knob_sets(able, problem), knob_sets(one, problem)
    builds = [tuple(pair for pair in knobs if pair[0] in dict(one.build_knobs)) for knobs in every]
    foreign = list(dict.fromkeys(build for build, knobs in zip(builds, every, strict=True) if knobs not in own))
    return own + [knobs for build, knobs in zip(builds, every, strict=True) if build in foreign[::3]]


def check_run_knobs(kernel: str, name: str, problem: Problem, threads: int = 2) -> None:
    """Every choice of run knobs of the default build: for variants whose tiles are another kernel's headers."""
    one = variant(kernel, name)
    built = {knob: dict(one.defaults)[knob] for knob, _ in one.build_knobs}
    sets = [knobs for knobs in knob_sets(one, problem) if built.items() <= dict(knobs).items()]
    inputs = spec(kernel).inputs(problem, 1)
    expected = spec(kernel).reference(problem, inputs)
    assert len(sets) > 1
    for knobs in sets:
        found = worst(run(Case(kernel, one, problem, knobs, threads), inputs), expected)
        assert found <= 1, (found, dict(knobs))


def check_knobs(kernel: str, name: str, problem: Problem, threads: int = 2) -> None:
    """Every choice of knobs that this machine may be given is inside the tolerances on one problem."""
    inputs = spec(kernel).inputs(problem, 1)
    expected = spec(kernel).reference(problem, inputs)
    one = variant(kernel, name)
    cases = [Case(kernel, one, problem, knobs, threads) for knobs in tried_sets(one, problem)]
    compile_ahead(cases)
    for case in cases:
        found = worst(run(case, inputs), expected)
        assert found <= 1, (found, dict(case.knobs))


def check_everywhere(kernel: str, name: str, dtype: str, sizes: tuple[int, ...] = (1, 2, 17, 49, 131)) -> int:
    """Default knobs on SHAPES and sizes, draws and teams in turn.

    Returns:
        How many runs that were.
    """
    one, cases = variant(kernel, name), []
    for shape, n in itertools.product(SHAPES[dtype], sizes):
        problem = spec(kernel).problem(n, dtype, **shape)
        knobs = default_knobs(one, problem)
        if knobs is not None:
            runs = [RUNS[(len(cases) + step) % len(RUNS)] for step in (0, 1)]
            cases += [(Case(kernel, one, problem, knobs, threads), draw) for draw, threads in runs]
    compile_ahead(case for case, _ in cases)
    for case, draw in cases:
        check(case, draw)
    return len(cases)


def scratch_bytes(kernel: str, name: str, n: int, threads: int = 2, **shape: int) -> int:
    """What a variant asks of the workspace with default knobs; float32."""
    one, problem = variant(kernel, name), spec(kernel).problem(n, "float32", **shape)
    knobs = default_knobs(one, problem)
    assert knobs is not None
    case = Case(kernel, one, problem, knobs, threads)
    values = entry_dims(spec(kernel), one, problem, knobs)
    size = getattr(ctypes.CDLL(library_of(case)), f"{one.symbol}_workspace")
    size.restype = ctypes.c_int64
    return int(size((ctypes.c_int64 * len(values))(*values), threads))


CHILD = """
import ctypes, sys
import numpy as np
path, symbol, threads, kind, shapes, dims = eval(sys.argv[1])
library = ctypes.CDLL(path)
dims = (ctypes.c_int64 * len(dims))(*dims)
size = getattr(library, symbol + "_workspace")
size.restype = ctypes.c_int64
scratch = np.zeros(size(dims, threads) + 64, np.uint8)
arrays = [np.full(shape, 0.01, kind) for shape in shapes]
buffers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
aligned = ctypes.c_void_p(scratch.ctypes.data + -scratch.ctypes.data % 64)
code = getattr(library, symbol)(buffers, dims, aligned, threads)
sys.exit(code or not all(np.isfinite(array).all() for array in arrays))
"""


def run_on_small_stacks(case: Case, part: int = 1) -> int:
    """Exit status of a call on small stacks; negative: a signal.

    Args:
        case: what is run.
        part: stacks are this many times smaller than usual ones. What grows with n then fits into them at n where it
            would fit into usual ones at n x part, in a part**2 of the time.
    """
    kernel = spec(case.kernel)
    shapes = [kernel.shapes(case.problem)[name] for name in kernel.buffers]
    dims = entry_dims(kernel, case.variant, case.problem, case.knobs)
    what = repr((library_of(case), case.variant.symbol, case.threads, case.problem.dtype, shapes, tuple(dims)))
    own = STACK_BYTES // part
    found = subprocess.run(
        [sys.executable, "-c", CHILD, what],
        env={**os.environ, "OMP_STACKSIZE": f"{THREAD_STACK_BYTES // part}B"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (own, own)),
        check=False,
        timeout=120,
    )
    return found.returncode
