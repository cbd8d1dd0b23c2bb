"""The definition of RMSNorm: its reference, tolerance, costs and inputs."""

import numpy as np
import pytest
from row_fixtures import short

from advisor.errors import BadInput
from advisor.kernels.judge import relative_error
from advisor.kernels.rms import EPS, widened
from advisor.kernels.rmsnorm.spec import SPEC


def formula(inputs, eps=EPS, kind=np.float64):
    """y in some precision, its sum one element after the other."""
    x, g = inputs["x"].astype(kind), inputs["g"].astype(kind)
    squares = np.cumsum(np.square(x), axis=-1, dtype=kind)[..., -1:]
    return x * (kind(1) / np.sqrt(squares / kind(x.shape[-1]) + kind(eps))) * g


def checked(problem, draw="normal", seed=1):
    inputs = SPEC.inputs(problem, seed, draw)
    return inputs, SPEC.reference(problem, inputs)["y"]


@pytest.mark.parametrize("draw", SPEC.draws)
def test_the_reference_is_the_formula(draw):
    inputs, expected = checked(SPEC.problem(33, "float64", batch=3, d_model=80), draw)
    assert relative_error(formula(inputs), expected.values) < 1e-14
    assert expected.values.shape == (3, 33, 80)


def test_pytorch_agrees_with_the_reference():
    torch = pytest.importorskip("torch")
    inputs, expected = checked(SPEC.problem(33, "float64"), "outlier")
    x, g = (torch.from_numpy(inputs[name]) for name in ("x", "g"))
    found = torch.nn.functional.rms_norm(x, (64,), g, EPS).numpy()
    assert relative_error(found, expected.values) < 1e-14


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("d_model", [1, 7, 64, 4099])
def test_rounding_stays_inside_the_tolerance(d_model, draw):
    inputs, expected = checked(SPEC.problem(64, "float32", d_model=d_model), draw)
    assert relative_error(formula(inputs, kind=np.float32), expected.values) <= expected.tolerance


@pytest.mark.parametrize("eps", [0.0, 1e-6, 2e-5])
def test_another_constant_below_the_root_is_outside_of_it(eps):
    inputs, expected = checked(SPEC.problem(64, "float32"), "outlier")
    assert relative_error(formula(inputs, eps), expected.values) > 10 * expected.tolerance


def test_a_mean_that_loses_one_element_is_outside_of_it():
    problem = SPEC.problem(64, "float32", d_model=4096)
    inputs, expected = checked(problem)
    shorter = {**inputs, "x": inputs["x"].copy()}
    shorter["x"][..., -1] = 0
    lost = relative_error(formula(shorter)[..., :-1], expected.values[..., :-1])
    assert lost > 10 * expected.tolerance


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("draw", SPEC.draws)
def test_rows_of_sixteen_bits_may_be_stored_once_or_twice(dtype, draw):
    inputs, expected = checked(SPEC.problem(64, dtype), draw)
    of = widened(inputs, dtype)
    exact = of["x"] / np.sqrt(np.square(of["x"]).mean(axis=-1, keepdims=True) + np.float32(EPS))
    once, twice = short(exact * of["g"], dtype), short(short(exact, dtype) * of["g"], dtype)
    assert relative_error(once, expected.values) <= expected.allowed("real")
    assert expected.allowed("real") < relative_error(twice, expected.values) <= expected.allowed("cache")
    assert relative_error(formula(of, 2e-5), expected.values) > expected.allowed("cache") or draw == "normal"


def test_costs():
    problem = SPEC.problem(1024, batch=2, d_model=64)
    assert SPEC.elements(problem) == (2 * 1024 * 64 + 64, 2 * 1024 * 64)
    assert SPEC.flops(problem) == 2 * 1024 * (4 * 64 + 4)


def test_outlier_rows_have_several_magnitudes_and_massive_elements():
    x = SPEC.inputs(SPEC.problem(30, batch=1, d_model=128), 1, "outlier")["x"][0]
    sizes = np.median(np.abs(x), axis=1)
    small, plain, large = (sizes[first::3] for first in (1, 0, 2))
    assert small.max() < 0.01
    assert 0.3 < plain.min() <= plain.max() < 3 < large.min()
    assert np.abs(x[0, ::37]).max() > 20 * sizes[0]


def test_shapes_are_checked():
    with pytest.raises(BadInput, match="heads"):
        SPEC.problem(4, heads=2)
    assert SPEC.shape_label(SPEC.problem(4).shape) == "batch 2, d_model 64"
