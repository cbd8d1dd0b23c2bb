"""Decode in Fortran: edge shapes, teams, draws and knobs against the DNF, as the variants in C that it mirrors."""

from __future__ import annotations

import numpy as np
import pytest
from decode_fixtures import Case, compile_ahead, default_knobs, run, variant, wrong

from advisor.kernels.decode.spec import SHAPE_EDGES, SIZE_EDGES, SPEC
from advisor.kernels.fortran import fortran_compilers
from advisor.kernels.variant import knob_sets

pytestmark = pytest.mark.skipif(not fortran_compilers(), reason="no Fortran compiler with OpenMP here")

TEAMS = (2, 7)
SHAPES = SHAPE_EDGES[:1] + SHAPE_EDGES[-1:]
"""Each is a build: the paper's, an odd head_dim with three heads on one cache."""


def shaped(n, shape, dtype="float32"):
    return SPEC.problem(n, dtype, **dict(zip(("batch", "heads", "kv_heads", "head_dim"), shape, strict=True)))


def own(problem, threads, knobs=None):
    """A run of the Fortran variant, at its default knobs."""
    one = variant("fortran")
    return Case(one, problem, default_knobs(one, problem) if knobs is None else knobs, threads)


def test_it_stands_for_two_variants_in_c():
    one = variant("fortran")
    assert one.mirrors == ("grouped", "split")
    assert one.dtypes == ("float32", "float64")


@pytest.mark.parametrize(("dtype", "shape"), [*(("float32", shape) for shape in SHAPES), ("float64", (1, 4, 2, 64))])
def test_edges_with_both_draws_and_several_teams(dtype, shape):
    for n in SIZE_EDGES:
        problem = shaped(n, shape, dtype)
        for draw in SPEC.draws:
            inputs = SPEC.inputs(problem, n, draw)
            expected = SPEC.reference(problem, inputs)["out"]
            for threads in TEAMS:
                assert not wrong(own(problem, threads), inputs, expected)


def test_every_block_around_its_border():
    for n in (1, 17, 129, 515):
        problem = shaped(n, (1, 4, 2, 64))
        inputs = SPEC.inputs(problem, seed=n)
        cases = [own(problem, 3, knobs) for knobs in knob_sets(variant("fortran"), problem)]
        assert len(cases) == 3
        compile_ahead(cases)
        assert [wrong(case, inputs) for case in cases] == [""] * 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_far_below_zero_and_rising_maxima(dtype):
    """Every row raises the maximum by more than 2^x can express, so every earlier sum must shrink to nothing."""
    problem = shaped(200, (1, 4, 2, 64), dtype)
    inputs = SPEC.inputs(problem, seed=9)
    inputs["q"][:] = 1
    inputs["k"][:] = (np.arange(200) - 1000)[:, None] * 50
    for threads in (1, 3):
        out = run(own(problem, threads), inputs)
        np.testing.assert_allclose(out, np.repeat(inputs["v"][:, :, -1], 2, axis=1), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "roundoff"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_powers_of_two_are_as_exact_as_in_c(dtype, roundoff):
    """Two rows, the values 1 and 0: out is w / (1 + w) with w = 2^x, for scores x from -72 up to the maximum."""
    problem = shaped(2, (4096, 1, 1, 4), dtype)
    inputs = SPEC.inputs(problem, seed=1)
    for name in ("q", "k", "v"):
        inputs[name][:] = 0
    inputs["q"][:, 0, 0] = np.linspace(0, 100, 4096)
    inputs["k"][:, 0, 1, 0] = -1
    inputs["v"][:, 0, 1] = 1
    x = inputs["q"][:, 0, 0].astype(np.float64) / 2 * np.log2(np.e)
    error = np.abs(run(own(problem, 2), inputs)[:, 0, 0] * (1 + 2**-x) * 2**x - 1)
    rounding_of_x = 2 * np.log(2) * x
    assert (error / roundoff < 3 + 4 + rounding_of_x).all()


def test_a_run_repeats_itself_and_teams_differ_by_less_than_the_tolerance():
    problem = shaped(1000, (1, 4, 2, 64))
    inputs = SPEC.inputs(problem, seed=8)
    outs = [run(own(problem, 3), inputs) for _ in range(5)]
    assert all(np.array_equal(out, outs[0]) for out in outs)
    others = [run(own(problem, threads), inputs) for threads in (1, 2, 5, 16)]
    tolerance = SPEC.reference(problem, inputs)["out"].tolerance
    assert max(np.abs(out - outs[0]).max() for out in others) <= tolerance
