"""Inputs and reference as a device makes them, with numpy in the place of its arrays: the same as the spec's."""

import numpy as np
import pytest

from advisor.kernels.decode import device
from advisor.kernels.decode.spec import SPEC
from advisor.kernels.gpu import arrays
from advisor.kernels.sixteen import narrow, widen

SHAPES = (
    {"batch": 1, "heads": 14, "kv_heads": 2, "head_dim": 16},
    {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 7},
)


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("draw", SPEC.draws)
def test_the_reference_and_its_tolerances_are_the_spec_s(dtype, shape, draw, monkeypatch):
    monkeypatch.setattr(device, "ROWS", 50)
    problem = SPEC.problem(131, dtype, **shape)
    inputs = device.inputs(np, problem, 3, draw)
    here, there = device.reference(np, problem, inputs)["out"], SPEC.reference(problem, inputs)["out"]
    np.testing.assert_allclose(here.values, there.values, rtol=1e-11, atol=1e-13)
    assert here.tolerance == pytest.approx(there.tolerance, rel=1e-9)
    assert here.cache_tolerance == pytest.approx(there.cache_tolerance, rel=1e-9)
    assert here.cache_tolerance > here.tolerance


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("draw", SPEC.draws)
def test_inputs_have_the_spec_s_types_and_outliers_and_queries_that_the_cache_can_hold(dtype, draw, monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 1000)
    problem = SPEC.problem(131, dtype, **SHAPES[0])
    here, there = device.inputs(np, problem, 3, draw), SPEC.inputs(problem, 3, draw)
    for name, array in there.items():
        assert (here[name].dtype, here[name].shape) == (array.dtype, array.shape)
        if draw == "outlier" and name != "k":
            assert np.array_equal(here[name], array)
    if dtype.endswith("16"):
        assert np.array_equal(widen(narrow(here["q"], dtype), dtype), here["q"])
