"""The definition of the gated MLP: its reference, tolerance, costs and inputs."""

import numpy as np
import pytest
from row_fixtures import short, wide

from advisor.errors import BadInput
from advisor.kernels import attention
from advisor.kernels.gated import sampled, sigmoid
from advisor.kernels.judge import relative_error
from advisor.kernels.mlp import spec as module
from advisor.kernels.mlp.spec import SPEC
from advisor.kernels.rms import widened


def formula(inputs, kind=np.float64):
    """y in some precision, every product a sum of its own."""
    x, wg, wu, wd = (inputs[name].astype(kind) for name in ("x", "wg", "wu", "wd"))
    a, b = x @ wg.T, x @ wu.T
    return ((a * sigmoid(a).astype(kind)) * b) @ wd.T


def checked(problem, draw="normal", seed=1):
    inputs = SPEC.inputs(problem, seed, draw)
    return inputs, SPEC.reference(problem, inputs)["y"]


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [(2, 64, 256), (3, 7, 5), (1, 80, 33)])
def test_the_reference_is_the_formula(shape, draw):
    batch, d_model, d_ff = shape
    inputs, expected = checked(SPEC.problem(9, "float64", batch=batch, d_model=d_model, d_ff=d_ff), draw)
    assert expected.values.shape == (batch, 9, d_model)
    assert relative_error(formula(inputs), expected.values) < 1e-12


def test_pytorch_agrees_with_the_reference():
    torch = pytest.importorskip("torch")
    inputs, expected = checked(SPEC.problem(9, "float64"), "outlier")
    x, wg, wu, wd = (torch.from_numpy(inputs[name]) for name in ("x", "wg", "wu", "wd"))
    linear = torch.nn.functional.linear
    found = linear(torch.nn.functional.silu(linear(x, wg)) * linear(x, wu), wd).numpy()
    assert relative_error(found, expected.values) < 1e-12


def test_blocks_of_the_reference_add_up(monkeypatch):
    problem = SPEC.problem(33, "float64", d_model=12, d_ff=100)
    inputs, whole = checked(problem)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 8)
    monkeypatch.setattr(module, "WITHIN_AT_ONCE", 7)
    parts = SPEC.reference(problem, inputs)["y"]
    assert relative_error(parts.values, whole.values) < 1e-14
    assert parts.tolerance == pytest.approx(whole.tolerance, rel=1e-9)


def test_of_large_problems_chosen_rows_are_known(monkeypatch):
    problem = SPEC.problem(200, "float64")
    inputs, whole = checked(problem)
    monkeypatch.setattr(module, "SAMPLED_FLOPS", 1.0)
    some = SPEC.reference(problem, inputs)["y"]
    assert some.rows is not None
    assert {0, 1, 15, 16, 17, 399} <= set(some.rows.tolist())
    assert relative_error(some.values, whole.values.reshape(-1, 64)[some.rows]) < 1e-14
    assert sampled(1).tolist() == [0]
    assert SPEC.flops(SPEC.problem(65536)) < attention.SAMPLED_FLOPS, "the paper's largest is known whole"


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [(64, 256), (7, 5), (1, 1), (512, 1024)])
def test_rounding_stays_inside_the_tolerance(shape, draw):
    inputs, expected = checked(SPEC.problem(33, "float32", d_model=shape[0], d_ff=shape[1]), draw)
    assert relative_error(formula(inputs, np.float32), expected.values) <= expected.tolerance


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("what", ["gate", "up", "one", "halves"])
def test_what_is_wrong_is_outside_of_it(what, draw):
    """Weights exchanged, one element of h lost, sums kept in half the digits."""
    inputs, expected = checked(SPEC.problem(33, "float32"), draw)
    wrong = dict(inputs)
    if what == "gate":
        wrong |= {"wg": inputs["wu"], "wu": inputs["wg"]}
    elif what == "up":
        wrong |= {"wu": inputs["wg"]}
    elif what == "one":
        wrong |= {"wd": np.concatenate([inputs["wd"][:, :-1], np.zeros((64, 1), np.float32)], axis=1)}
    else:
        wrong = {name: array.astype(np.float16) for name, array in inputs.items()}
    assert relative_error(formula(wide(wrong)), expected.values) > 8 * expected.tolerance


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [(2, 64, 256), (1, 7, 5), (1, 512, 1024)])
def test_a_result_a_tenth_too_small_is_far_outside_of_it(shape, draw):
    batch, d_model, d_ff = shape
    _, expected = checked(SPEC.problem(17, "float32", batch=batch, d_model=d_model, d_ff=d_ff), draw)
    assert relative_error(0.9 * expected.values, expected.values) > 100 * expected.tolerance


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [(64, 256), (1, 1)])
def test_sixteen_bits_between_the_steps_have_a_bound_of_their_own(shape, dtype, draw):
    """Beside that of real arithmetic with a result of sixteen bits. One element of h that is lost is in neither."""
    problem = SPEC.problem(33, dtype, d_model=shape[0], d_ff=shape[1])
    inputs, expected = checked(problem, draw)
    of = widened(inputs, dtype)
    x, wg, wu, wd = (of[name] for name in ("x", "wg", "wu", "wd"))
    a, b = short(x @ wg.T, dtype), short(x @ wu.T, dtype)
    h = short(short(a * sigmoid(a).astype(np.float32), dtype) * b, dtype)
    between = relative_error(short(h @ wd.T, dtype), expected.values)
    assert np.isfinite(h).all()
    assert between <= expected.allowed("cache")
    assert relative_error(short(formula(of, np.float32), dtype), expected.values) <= expected.allowed("real")
    lost = relative_error(formula(of | {"wd": wd * (np.arange(shape[1]) != 0)}), expected.values)
    assert lost > 1.2 * expected.allowed("cache") > expected.allowed("real")


def test_outliers_go_far_to_both_sides_of_silu():
    inputs = SPEC.inputs(SPEC.problem(64), 1, "outlier")
    a = inputs["x"].astype(np.float64) @ inputs["wg"].T.astype(np.float64)
    assert a.min() < -40
    assert a.max() > 40
    assert np.isfinite(sigmoid(np.array([-1e4, 1e4]))).all()


def test_costs():
    problem = SPEC.problem(1024, batch=2, d_model=64, d_ff=256)
    assert SPEC.elements(problem) == (2048 * 64 + 3 * 64 * 256, 2048 * 64)
    assert SPEC.flops(problem) == 2048 * 256 * (6 * 64 + 5)
    assert SPEC.constant == ("wg", "wu", "wd")


def test_shapes_are_checked():
    with pytest.raises(BadInput, match="d_ff"):
        SPEC.problem(4, d_ff=0)
    assert SPEC.shape_label(SPEC.problem(4).shape) == "batch 2, d_model 64, d_ff 256"
