"""Every decode variant against the DNF: edge shapes, dtypes, draws, knobs, teams, seeds; and the frame's 2^x."""

import ctypes
import itertools
import os
import subprocess

import numpy as np
import pytest
from decode_fixtures import Case, compile_ahead, default_knobs, needs_compiler, run, variant, wrong
from kernel_fixtures import here

from advisor.kernels.compilers import compilers, flags
from advisor.kernels.decode.spec import SHAPE_EDGES, SIZE_EDGES, SPEC
from advisor.kernels.registry import HERE
from advisor.kernels.variant import knob_sets, variants
from advisor.kernels.verify import rows

NAMES = ("naive", "split", "grouped")
SIXTEEN = ("bfloat16", "float16")
SERVED = {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128}
TEAMS = (1, 2, 3, 7)

pytestmark = needs_compiler


def shaped(n, shape, dtype="float32"):
    return SPEC.problem(n, dtype, **dict(zip(("batch", "heads", "kv_heads", "head_dim"), shape, strict=True)))


def check(problem, draw="normal", seed=1, teams=(2,), names=NAMES, flag_set="native"):
    """Every variant that is valid for the shape is within the tolerance, with its default knobs, on every team."""
    inputs = SPEC.inputs(problem, seed, draw)
    expected = SPEC.reference(problem, inputs)["out"]
    for name in names:
        knobs = default_knobs(variant(name), problem)
        for threads in teams if knobs is not None else ():
            assert not wrong(Case(variant(name), problem, knobs, threads, flag_set), inputs, expected)


def test_the_ladder_and_its_order():
    found = [one for one in variants("decode") if one.language == "c"]
    assert [one.name for one in found] == ["grouped", "split", "naive"]
    assert all(set(one.dtypes) == set(SPEC.dtypes) for one in found)
    assert default_knobs(variant("grouped"), SPEC.problem(64)) is None, "one head a cache: there is no group"
    assert default_knobs(variant("naive"), shaped(5, (1, 1, 1, 7))) is not None, "naive takes every shape"


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *(("float32", shape) for shape in SHAPE_EDGES),
        ("float64", (1, 5, 1, 64)),
        ("bfloat16", (1, 6, 2, 80)),
        ("float16", (3, 14, 2, 32)),
    ],
)
def test_edges_with_both_draws_and_several_teams(dtype, shape):
    for n in SIZE_EDGES:
        for draw in SPEC.draws:
            check(shaped(n, shape, dtype), draw, seed=n, teams=TEAMS)


@pytest.mark.parametrize("dtype", ["float64", *SIXTEEN])
def test_without_the_instructions_of_this_machine(dtype):
    """Plain -O2 for the least processor: float16 is then converted by arithmetic, and a vector is many registers."""
    for n in (5, 129):
        problem = shaped(n, (1, 6, 2, 80), dtype)
        inputs = SPEC.inputs(problem, seed=n)
        expected = SPEC.reference(problem, inputs)["out"]
        for name in NAMES:
            knobs = max(knob_sets(variant(name), problem), key=lambda one: dict(one).get("ADV_V", 0))
            assert not wrong(Case(variant(name), problem, knobs, 3, "o2"), inputs, expected)


@pytest.mark.parametrize(
    "dtype",
    ["float32", pytest.param("float64", marks=pytest.mark.slow), pytest.param("float16", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", ["split", "grouped"])
def test_every_knob(name, dtype):
    """Block sizes, prefetch, widths and tiles around their own borders, with rows split inside a tile (3 threads)."""
    for n in (1, 5, 16, 17, 129, 515):
        problem = shaped(n, (1, 8, 2, 32), dtype)
        inputs = SPEC.inputs(problem, seed=n)
        expected = SPEC.reference(problem, inputs)["out"]
        cases = [Case(variant(name), problem, knobs, 3) for knobs in knob_sets(variant(name), problem)]
        assert len(cases) >= 16
        compile_ahead(cases)
        for case in cases:
            assert not wrong(case, inputs, expected)


@pytest.mark.parametrize("n", [1919, 1920, 1921, 2808, 4094, 4095])
def test_served_sizes(n):
    """Just beside the sizes at which caches end, in the groups that models have, with the cache in 16 bits too."""
    for dtype, heads in (("float32", 5), ("bfloat16", 7), ("float16", 5)):
        check(shaped(n, (1, heads, 1, 128), dtype), "outlier" if n % 2 else "normal")


@pytest.mark.slow
@pytest.mark.parametrize("heads", [(40, 8), (28, 4)])
@pytest.mark.parametrize("n", [1919, 1920, 1921, 2808, 4094, 4095])
def test_served_sizes_with_all_heads(n, heads):
    for dtype in ("float32", *SIXTEEN):
        for draw in SPEC.draws:
            check(shaped(n, (1, *heads, 128), dtype), draw)


@pytest.mark.slow
@pytest.mark.parametrize("n", [4096, 65537])
def test_served_shape_at_full_size(n):
    check(SPEC.problem(n, **SERVED))


@pytest.mark.parametrize("draw", range(3))
def test_random_seeds(draw):
    seed = int(np.random.SeedSequence().generate_state(1)[0])  # not in the name: two processes collect the same tests
    for dtype, shape in (("float32", (2, 1, 1, 64)), ("float32", (1, 10, 2, 64)), ("bfloat16", (1, 6, 2, 80))):
        check(shaped(777, shape, dtype), seed=seed)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_the_storage_is_widened_right(name, dtype):
    """One row of the cache and so the weight 1: out is that row, for every finite pattern of 16 bits."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    finite = patterns[(patterns & 0x7F80) < 0x7F00] if dtype == "bfloat16" else patterns[(patterns & 0x7C00) < 0x7C00]
    values = np.resize(finite, (len(finite) + 63) // 64 * 64).reshape(-1, 1, 1, 64)
    problem = shaped(1, (len(values), 2, 1, 64), dtype)
    inputs = SPEC.inputs(problem, seed=0)
    inputs["v"] = values if dtype == "bfloat16" else values.view(np.float16)
    out = run(Case(variant(name), problem, default_knobs(variant(name), problem) or (), 2), inputs)
    wide = (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else inputs["v"].astype(np.float32)
    np.testing.assert_allclose(out, np.repeat(wide[:, :, 0], 2, axis=1), rtol=3 * 2.0**-24, atol=2.0**-140)


@pytest.mark.parametrize("name", NAMES)
def test_scores_far_below_zero_and_rising_maxima(name):
    """Every row raises the maximum by more than 2^x can express, so every earlier sum must shrink to nothing."""
    problem = shaped(200, (1, 4, 2, 64))
    inputs = SPEC.inputs(problem, seed=9)
    inputs["q"][:] = 1
    inputs["k"][:] = (np.arange(200, dtype=np.float32) - 1000)[:, None] * 50
    for threads in (1, 3):
        out = run(Case(variant(name), problem, default_knobs(variant(name), problem), threads), inputs)
        np.testing.assert_allclose(out, np.repeat(inputs["v"][:, :, -1], 2, axis=1), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_thread_count_changes_nothing_beyond_the_tolerance(name):
    problem = shaped(333, (2, 4, 2, 64))
    inputs = SPEC.inputs(problem, seed=8)
    knobs = default_knobs(variant(name), problem)
    outs = [run(Case(variant(name), problem, knobs, threads), inputs) for threads in (1, 2, 3, 5, 8, 16)]
    assert max(np.abs(out - outs[0]).max() for out in outs) <= SPEC.reference(problem, inputs)["out"].tolerance


def test_a_run_repeats_itself():
    """The same team gives the same bits, although parts are merged by whichever thread is last."""
    problem = shaped(1000, (1, 4, 2, 64))
    inputs = SPEC.inputs(problem, seed=8)
    for name in NAMES:
        case = Case(variant(name), problem, default_knobs(variant(name), problem), 3)
        outs = [run(case, inputs) for _ in range(5)]
        assert all(np.array_equal(out, outs[0]) for out in outs)


@pytest.mark.slow
def test_all_builds_of_all_compilers_on_all_edges():
    """As `advisor verify`: every dtype, shape, size, draw and team, with scratch poisoned and canaries around."""
    found = list(rows(here(), SPEC, [variant(name) for name in NAMES]))
    assert [row for row in found if row.status != "ok"] == []
    assert {row.variant for row in found} == set(NAMES)
    assert {row.compiler for row in found} == {compiler.name for compiler in compilers()}
    met = {(row.problem.dtype, row.problem.n, row.draw) for row in found}
    assert met == set(itertools.product(SPEC.dtypes, SIZE_EDGES, SPEC.draws))


EXP2 = """
#include "real.h"
void exp2_all(const real *x, real *y, long n)
{
    for (long i = 0; i < n; i += W) store(y + i, exp2_of(load(x + i)));
}
void exp2_each(const real *x, real *y, long n)
{
    for (long i = 0; i < n; i++) y[i] = exp2_one(x[i]);
}
"""
REALS = {"float": (np.float32, 2.0**-24, -125.0), "double": (np.float64, 2.0**-53, -1021.0)}
"""C type -> numpy's, unit roundoff, the least argument that is computed."""


@pytest.fixture(scope="module")
def exp2(tmp_path_factory):
    """Compile the frame's 2^x for one compiler, flag set, real and vector size; each once."""
    folder, made = tmp_path_factory.mktemp("exp2"), {}

    def library(compiler, flag_set, real, size):
        key = (compiler.name, flag_set, real, size)
        if key not in made:
            source, path = folder / "exp2.c", folder / f"{len(made)}.so"
            source.write_text(EXP2)
            wanted = ["-fPIC", "-shared", f"-DADV_REAL={real}", f"-DADV_V={size}", f"-I{os.path.join(HERE, 'frame')}"]
            subprocess.run([compiler.path, *flags(flag_set), *wanted, str(source), "-o", str(path)], check=True)
            made[key] = ctypes.CDLL(str(path))
        return made[key]

    return library


def powers(function, x):
    """What one of the two functions makes of x, whose length is a multiple of every vector's."""
    y = np.empty_like(x)
    function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size))
    return y


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("flag_set", ["native", "o2"])
@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("compiler", compilers(), ids=lambda one: one.name)
def test_exp2_is_within_three_roundoffs(exp2, compiler, real, flag_set, size):
    kind, u, least = REALS[real]
    x = np.concatenate([np.linspace(least, 0, 400_000), np.linspace(-2, 0, 99_999), -np.logspace(-30, 2, 100_000), [0]])
    x = x.astype(kind)
    library = exp2(compiler, flag_set, real, size)
    exact = np.exp2(x.astype(np.longdouble))
    for function, count in ((library.exp2_all, x.size), (library.exp2_each, 4096)):
        y = powers(function, x[-count:])
        assert np.abs(y / exact[-count:] - 1).max() < 3 * u
        assert y[-1] == 1.0


@pytest.mark.parametrize("real", REALS)
def test_exp2_below_its_range_is_next_to_nothing(exp2, real):
    kind, _, least = REALS[real]
    x = np.repeat(np.array([least - 0.5, 10 * least, -1e30, -1e5], kind), 16)
    assert (powers(exp2(compilers()[0], "native", real, 32).exp2_all, x) == 2.0**least).all()
