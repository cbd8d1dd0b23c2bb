"""Every decode variant against the DNF: edge shapes, knobs, teams, seeds, outliers; and the bound of exp2.h."""

import ctypes
import os
import subprocess

import numpy as np
import pytest
from decode_fixtures import Case, default_knobs, error, needs_compiler, run, variant
from kernel_fixtures import here

from advisor.kernels.compilers import compilers, flags
from advisor.kernels.decode.spec import SHAPE_EDGES, SIZE_EDGES, SPEC
from advisor.kernels.registry import HERE
from advisor.kernels.variant import knob_sets, variants
from advisor.kernels.verify import rows

NAMES = ("naive", "split", "grouped")
SERVED = {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128}
TEAMS = (1, 2, 3, 7)

pytestmark = needs_compiler


def shaped(n, shape):
    return SPEC.problem(n, **dict(zip(("batch", "heads", "kv_heads", "head_dim"), shape, strict=True)))


def check(name, problem, inputs, threads, knobs=None, scale=1.0):
    """The error of one run is under the tolerance; a variant that is not valid for the shape is no case."""
    knobs = default_knobs(variant(name), problem) if knobs is None else knobs
    if knobs is not None:
        found = error(Case(variant(name), problem, knobs, threads), inputs)
        assert found <= scale * SPEC.tolerance(problem), (problem, dict(knobs), threads)


def test_the_ladder_and_its_order():
    found = variants("decode")
    assert [one.name for one in found] == ["grouped", "split", "naive"]
    assert default_knobs(variant("grouped"), SPEC.problem(64)) is None, "one head a cache: there is no group"
    assert default_knobs(variant("naive"), shaped(5, (1, 1, 1, 7))) is not None, "naive takes every shape"


@pytest.mark.parametrize("shape", SHAPE_EDGES)
@pytest.mark.parametrize("name", NAMES)
def test_edges_with_default_knobs_and_several_teams(name, shape):
    for n in SIZE_EDGES:
        problem = shaped(n, shape)
        inputs = SPEC.inputs(problem, seed=n)
        for threads in TEAMS:
            check(name, problem, inputs, threads)


@pytest.mark.parametrize("n", [1, 5, 16, 17, 129, 515])
@pytest.mark.parametrize("name", ["split", "grouped"])
def test_every_knob(name, n):
    """Block sizes, prefetch, widths and tiles around their own borders, with rows split inside a tile (3 threads)."""
    problem = shaped(n, (1, 8, 2, 64))
    inputs = SPEC.inputs(problem, seed=n)
    sets = knob_sets(variant(name), problem)
    assert len(sets) >= 24
    for knobs in sets:
        check(name, problem, inputs, 3, knobs)


@pytest.mark.parametrize("n", [1919, 1920, 1921, 2808, 4094, 4095, 4096, 65537])
def test_served_sizes(n):
    for shape in ((2, 1, 1, 64), (1, 4, 1, 128)):
        problem = shaped(n, shape)
        inputs = SPEC.inputs(problem, seed=1)
        for name in NAMES:
            check(name, problem, inputs, 2)


@pytest.mark.slow
@pytest.mark.parametrize("n", [4096, 65537])
def test_served_shape_at_full_size(n):
    problem = SPEC.problem(n, **SERVED)
    inputs = SPEC.inputs(problem, seed=1)
    for name in NAMES:
        check(name, problem, inputs, 2)


@pytest.mark.parametrize("seed", np.random.SeedSequence().generate_state(3).tolist())
def test_random_seeds(seed):
    for shape in ((2, 1, 1, 64), (1, 10, 2, 48)):
        problem = shaped(777, shape)
        inputs = SPEC.inputs(problem, seed)
        for name in NAMES:
            check(name, problem, inputs, 2)


@pytest.mark.parametrize("name", NAMES)
def test_outliers(name):
    """Activations of real models: |q| up to 57 and |v| up to 144, so that one row takes nearly all the weight."""
    problem = shaped(1000, (1, 8, 2, 64))
    inputs = SPEC.inputs(problem, seed=4)
    inputs["q"] *= np.float32(57 / np.abs(inputs["q"]).max())
    inputs["v"] *= np.float32(144 / np.abs(inputs["v"]).max())
    for threads in (1, 3):
        check(name, problem, inputs, threads, scale=144)


@pytest.mark.parametrize("name", NAMES)
def test_scores_far_below_zero_and_rising_maxima(name):
    """Every row raises the maximum by more than exp2 can express, so every earlier sum must shrink to nothing."""
    problem = shaped(200, (1, 4, 2, 16))
    inputs = SPEC.inputs(problem, seed=9)
    inputs["q"][:] = 1
    inputs["k"][:] = (np.arange(200, dtype=np.float32) - 1000)[:, None] * 50
    for threads in (1, 3):
        out = run(Case(variant(name), problem, default_knobs(variant(name), problem), threads), inputs)
        np.testing.assert_allclose(out, np.repeat(inputs["v"][:, :, -1], 2, axis=1), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_one_row_returns_it(name):
    problem = shaped(1, (2, 4, 2, 64))
    inputs = SPEC.inputs(problem, seed=2)
    out = run(Case(variant(name), problem, default_knobs(variant(name), problem), 2), inputs)
    np.testing.assert_allclose(out, np.repeat(inputs["v"][:, :, 0], 2, axis=1), rtol=3 * 2.0**-24)


@pytest.mark.parametrize("name", NAMES)
def test_thread_count_changes_nothing_beyond_the_tolerance(name):
    problem = shaped(333, (2, 4, 2, 64))
    inputs = SPEC.inputs(problem, seed=8)
    knobs = default_knobs(variant(name), problem)
    outs = [run(Case(variant(name), problem, knobs, threads), inputs) for threads in (1, 2, 3, 5, 8, 16)]
    assert max(np.abs(out - outs[0]).max() for out in outs) <= SPEC.tolerance(problem)


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
    found = list(rows(here(), SPEC, variants("decode")))
    assert [row for row in found if row.status != "ok"] == []
    assert {row.variant for row in found} == set(NAMES)
    assert {row.compiler for row in found} == {compiler.name for compiler in compilers()}


EXP2 = """
#include "exp2.h"
void exp2_all(const float *x, float *y, long n)
{
#pragma omp simd
    for (long i = 0; i < n; i++) y[i] = exp2_of(x[i]);
}
"""


@pytest.mark.parametrize("flag_set", ["native", "o2"])
@pytest.mark.parametrize("compiler", compilers(), ids=lambda one: one.name)
def test_exp2_is_within_three_roundoffs(tmp_path, compiler, flag_set):
    source, library = tmp_path / "exp2.c", tmp_path / "exp2.so"
    source.write_text(EXP2)
    command = [compiler.path, *flags(flag_set), "-fPIC", "-shared", f"-I{os.path.join(HERE, 'decode')}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    x = np.concatenate([np.linspace(-125, 0, 3_000_001), -np.logspace(-30, 2, 100_001), [0.0]]).astype(np.float32)
    y = np.empty_like(x)
    ctypes.CDLL(str(library)).exp2_all(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), x.size)
    exact = np.exp2(x.astype(np.float64))
    assert np.abs(y / exact - 1).max() < 3 * 2.0**-24
    assert y[-1] == 1.0


def test_exp2_below_its_range_is_next_to_nothing(tmp_path):
    source, library = tmp_path / "exp2.c", tmp_path / "exp2.so"
    source.write_text(EXP2)
    command = [compilers()[0].path, *flags("native"), "-fPIC", "-shared", f"-I{os.path.join(HERE, 'decode')}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    x = np.array([-125.5, -1e3, -1e30], np.float32)
    y = np.empty_like(x)
    ctypes.CDLL(str(library)).exp2_all(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), x.size)
    assert (y == 2.0**-125).all()
