"""The definition of RMSNorm with its projection: its reference, tolerance, costs and inputs."""

import numpy as np
import pytest
from row_fixtures import wide

from advisor.errors import BadInput
from advisor.kernels import attention
from advisor.kernels.judge import relative_error
from advisor.kernels.norm_linear import spec as module
from advisor.kernels.norm_linear.spec import SPEC
from advisor.kernels.rms import EPS


def formula(inputs, kind=np.float64, eps=EPS):
    """y in some precision, every product a sum of its own."""
    x, g, w = (inputs[name].astype(kind) for name in ("x", "g", "w"))
    scale = 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True, dtype=kind) + kind(eps))
    return (x * scale * g) @ w.T


def checked(problem, draw="normal", seed=1):
    inputs = SPEC.inputs(problem, seed, draw)
    return inputs, SPEC.reference(problem, inputs)["y"]


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [(2, 64, 192), (3, 7, 5), (1, 80, 33)])
def test_the_reference_is_the_formula(shape, draw):
    batch, d_model, d_out = shape
    inputs, expected = checked(SPEC.problem(9, "float64", batch=batch, d_model=d_model, d_out=d_out), draw)
    assert expected.values.shape == (batch, 9, d_out)
    assert relative_error(formula(inputs), expected.values) < 1e-13


def test_pytorch_agrees_with_the_reference():
    torch = pytest.importorskip("torch")
    inputs, expected = checked(SPEC.problem(9, "float64"), "outlier")
    x, g, w = (torch.from_numpy(inputs[name]) for name in ("x", "g", "w"))
    found = torch.nn.functional.linear(torch.nn.functional.rms_norm(x, (64,), g, EPS), w).numpy()
    assert relative_error(found, expected.values) < 1e-13


def test_blocks_of_the_reference_and_chosen_rows_are_those_of_the_whole(monkeypatch):
    problem = SPEC.problem(200, "float64")
    inputs, whole = checked(problem)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 8)
    parts = SPEC.reference(problem, inputs)["y"]
    assert relative_error(parts.values, whole.values) < 1e-14
    assert parts.tolerance == pytest.approx(whole.tolerance, rel=1e-9)
    monkeypatch.setattr(module, "SAMPLED_FLOPS", 1.0)
    some = SPEC.reference(problem, inputs)["y"]
    assert {0, 1, 15, 16, 17, 399} <= set(some.rows.tolist())
    assert relative_error(some.values, whole.values.reshape(-1, 192)[some.rows]) < 1e-14
    assert SPEC.flops(SPEC.problem(65536)) < attention.SAMPLED_FLOPS, "the paper's largest is known whole"


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [(64, 192), (7, 5), (1, 1), (1024, 256)])
def test_rounding_stays_inside_the_tolerance(shape, draw):
    inputs, expected = checked(SPEC.problem(33, "float32", d_model=shape[0], d_out=shape[1]), draw)
    assert relative_error(formula(inputs, np.float32), expected.values) <= expected.tolerance


@pytest.mark.parametrize(
    ("what", "draw"),
    [*((what, draw) for what in ("gain", "one", "halves") for draw in SPEC.draws), ("eps", "outlier")],
)
def test_what_is_wrong_is_outside_of_it(what, draw):
    """The gain left out, one element of each sum lost, sums kept in half the digits; EPS left out beside small rows."""
    inputs, expected = checked(SPEC.problem(33, "float32"), draw)
    wrong = wide(inputs)
    if what == "gain":
        wrong["g"] = np.ones(64)
    elif what == "one":
        wrong["w"][:, -1] = 0
    elif what == "halves":
        wrong = wide({name: array.astype(np.float16) for name, array in inputs.items()})
    found = formula(wrong, eps=0.0 if what == "eps" else EPS)
    assert relative_error(found, expected.values) > 8 * expected.tolerance


def test_costs():
    problem = SPEC.problem(1024, batch=2, d_model=64, d_out=192)
    assert SPEC.elements(problem) == (2048 * 64 + 64 + 64 * 192, 2048 * 192)
    assert SPEC.flops(problem) == 2048 * (4 * 64 + 4 + 2 * 64 * 192)
    assert SPEC.constant == ("g", "w")
    assert SPEC.shape_label(problem.shape) == "batch 2, d_model 64, d_out 192"


def test_shapes_are_checked():
    with pytest.raises(BadInput, match="d_out"):
        SPEC.problem(1, d_out=0)
    assert SPEC.shapes(SPEC.problem(3)) == {"x": (2, 3, 64), "g": (64,), "w": (192, 64), "y": (2, 3, 192)}
