"""Forward's inputs and reference as a device makes them, with numpy in the place of its arrays: as the spec's are."""

import numpy as np
import pytest

from advisor.kernels import attention as host
from advisor.kernels.attention import dims_of
from advisor.kernels.forward import device
from advisor.kernels.forward.spec import SPEC
from advisor.kernels.gpu import attention

SHAPES = (
    {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 7, "causal": 0},
    {"batch": 1, "heads": 6, "kv_heads": 2, "head_dim": 16, "causal": 1},
)


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("draw", SPEC.draws)
def test_the_reference_and_its_tolerances_are_the_spec_s(dtype, shape, draw, monkeypatch):
    monkeypatch.setattr(attention, "SCRATCH_BYTES", 50 * 8 * 131)
    problem = SPEC.problem(131, dtype, **shape)
    inputs = device.inputs(np, problem, 3, draw)
    here, there = device.reference(np, problem, inputs)["out"], SPEC.reference(problem, inputs)["out"]
    np.testing.assert_allclose(here.values, there.values, rtol=1e-11, atol=1e-13)
    assert here.tolerance == pytest.approx(there.tolerance, rel=1e-9)
    assert here.cache_tolerance == pytest.approx(there.cache_tolerance, rel=1e-9)
    assert here.cache_tolerance > here.tolerance


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_log_sums_are_the_host_s(shape, monkeypatch):
    monkeypatch.setattr(attention, "SCRATCH_BYTES", 20 * 8 * 65)
    problem = SPEC.problem(65, "bfloat16", **shape)
    inputs = SPEC.inputs(problem, 3)
    lse = attention.forward(np, dims_of(problem), inputs, "bfloat16")[1]
    np.testing.assert_allclose(lse, host.forward(dims_of(problem), SPEC.widened(problem, inputs))[1], rtol=1e-12)


def test_scores_of_few_rows_exist_at_a_time(monkeypatch):
    assert 8 * 8192 * attention.rows_at_once(8192) <= attention.SCRATCH_BYTES
    assert attention.rows_at_once(1 << 26) == 1
    assert attention.rows_at_once(3) == 3
    monkeypatch.setattr(attention, "SCRATCH_BYTES", 8 * 10 * 4)
    assert list(attention.blocks(10)) == [(0, 4), (4, 8), (8, 10)]


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("draw", SPEC.draws)
def test_inputs_have_the_spec_s_types_and_outliers(dtype, draw):
    problem = SPEC.problem(131, dtype, **SHAPES[1])
    here, there = device.inputs(np, problem, 3, draw), SPEC.inputs(problem, 3, draw)
    assert list(here) == list(there)
    for name, array in there.items():
        assert (here[name].dtype, here[name].shape) == (array.dtype, array.shape)
        if draw == "outlier" and name != "k":
            assert np.array_equal(here[name], array)


@pytest.mark.parametrize("axis", [-1, -2])
def test_norms_and_magnitudes_are_the_host_s(axis):
    problem = SPEC.problem(37, "float16", **SHAPES[1])
    q = SPEC.inputs(problem, 3)["q"]
    assert attention.norm(np, q, "float16", axis) == pytest.approx(host.norm(q, axis), rel=1e-12)
    assert attention.largest(np, q, "float16") == np.abs(q).max()
