"""The gradients of RMSNorm: against central differences and autograd, tolerance, costs."""

import numpy as np
import pytest
from gradient_fixtures import by_differences

from advisor.kernels.judge import relative_error
from advisor.kernels.rms import EPS, scales
from advisor.kernels.rmsnorm_backward.spec import SPEC


def forward(inputs):
    x = inputs["x"]
    return x * scales(x)[..., None] * inputs["g"]


def formula(inputs, kind):
    """gx and gg in some precision, sums one element after the other."""
    x, g, gy = (inputs[name].astype(kind) for name in ("x", "g", "gy"))
    width = kind(x.shape[-1])
    r = kind(1) / np.sqrt(np.cumsum(x * x, axis=-1, dtype=kind)[..., -1:] / width + kind(EPS))
    c = np.cumsum(gy * g * x, axis=-1, dtype=kind)[..., -1:]
    gx = r * gy * g - x * (c * r * r * r / width)
    gg = np.cumsum((gy * x * r).reshape(-1, x.shape[-1]), axis=0, dtype=kind)[-1]
    return {"gx": gx, "gg": gg}


def checked(problem, draw="normal", seed=1):
    inputs = SPEC.inputs(problem, seed, draw)
    return inputs, SPEC.reference(problem, inputs)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 1, 1), (1, 2, 8)])
def test_the_reference_agrees_with_central_differences(shape):
    batch, n, d_model = shape
    inputs, expected = checked(SPEC.problem(n, "float64", batch=batch, d_model=d_model))
    for output, name in (("gx", "x"), ("gg", "g")):
        found = by_differences(forward, inputs, name)
        assert relative_error(found, expected[output].values) < 1e-7


def test_autograd_agrees_with_the_reference():
    torch = pytest.importorskip("torch")
    inputs, expected = checked(SPEC.problem(17, "float64", d_model=80), "outlier")
    x, g = (torch.from_numpy(inputs[name]).requires_grad_() for name in ("x", "g"))
    y = torch.nn.functional.rms_norm(x, (80,), g, EPS)
    found = torch.autograd.grad(y, (x, g), torch.from_numpy(inputs["gy"]))
    for name, one in zip(("gx", "gg"), found, strict=True):
        assert relative_error(one.numpy(), expected[name].values) < 1e-11


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("d_model", [1, 7, 64, 1001])
def test_rounding_stays_inside_the_tolerance(d_model, draw):
    inputs, expected = checked(SPEC.problem(64, "float32", d_model=d_model), draw)
    for name, found in formula(inputs, np.float32).items():
        assert relative_error(found, expected[name].values) <= expected[name].tolerance


@pytest.mark.parametrize("left_out", ["gy", "g", "one row"])
def test_what_is_wrong_is_outside_of_it(left_out):
    inputs, expected = checked(SPEC.problem(64, "float32"))
    wrong = dict(inputs)
    if left_out == "one row":
        wrong["gy"] = inputs["gy"].copy()
        wrong["gy"][0, 17] = 0
    else:
        wrong[left_out] = np.ones_like(inputs[left_out])
    found = formula(wrong, np.float64)
    assert relative_error(found["gx"], expected["gx"].values) > 10 * expected["gx"].tolerance
    if left_out != "g":
        assert relative_error(found["gg"], expected["gg"].values) > 10 * expected["gg"].tolerance


def test_costs():
    problem = SPEC.problem(1024, batch=2, d_model=64)
    assert SPEC.elements(problem) == (2 * 2048 * 64 + 64, 2048 * 64 + 64)
    assert SPEC.flops(problem) == 2048 * (12 * 64 + 8)
