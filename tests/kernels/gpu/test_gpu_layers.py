"""Inputs and references of the layers made on a device, with arrays that are not numpy's: the same as the specs'."""

import importlib

import numpy as np
import pytest
from guest_arrays import Guest, xp

from advisor.kernels.gpu import layers
from advisor.kernels.registry import spec

SHAPES = {
    "rmsnorm": {"batch": 2, "d_model": 80},
    "norm_linear": {"batch": 2, "d_model": 40, "d_out": 33},
    "mlp": {"batch": 2, "d_model": 40, "d_ff": 33},
    "block": {"batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "d_model": 40, "d_ff": 33, "causal": 1},
}
DTYPES = ("float32", "float64", "bfloat16", "float16")

pytestmark = pytest.mark.parametrize("kernel", SHAPES)


def device(kernel):
    return importlib.import_module(f"advisor.kernels.{kernel}.device")


def of_guests(kernel, problem, inputs):
    """The reference of inputs that lie on a host, made on a device."""
    return device(kernel).reference(xp, problem, {name: Guest(array) for name, array in inputs.items()})["y"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("draw", ["normal", "outlier"])
def test_the_reference_and_its_tolerances_are_the_spec_s(kernel, dtype, draw, monkeypatch):
    monkeypatch.setattr(layers, "ROWS_AT_ONCE", 20)
    problem = spec(kernel).problem(33, dtype, **SHAPES[kernel])
    inputs = spec(kernel).inputs(problem, 3, draw)
    here, there = of_guests(kernel, problem, inputs), spec(kernel).reference(problem, inputs)["y"]
    np.testing.assert_allclose(here.values.get(), there.values, rtol=1e-11, atol=1e-12)
    assert here.tolerance == pytest.approx(there.tolerance, rel=1e-9)
    assert here.cache_tolerance == pytest.approx(there.cache_tolerance, rel=1e-9)
    assert (here.cache_tolerance > here.tolerance) == dtype.endswith("16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("draw", ["normal", "outlier"])
def test_inputs_are_of_the_spec_s_types_and_scale(kernel, dtype, draw):
    problem = spec(kernel).problem(300, dtype, **SHAPES[kernel])
    here, there = device(kernel).inputs(xp, problem, 3, draw), spec(kernel).inputs(problem, 3, draw)
    assert list(here) == list(there)
    for name, array in there.items():
        assert (here[name].dtype, here[name].shape) == (array.dtype, array.shape)
        mine, its = (layers.wide(problem, {name: one})[name].astype(np.float64) for one in (here[name].get(), array))
        assert np.abs(mine).mean() == pytest.approx(np.abs(its).mean(), rel=0.5 if mine.size < 100 else 0.1)
