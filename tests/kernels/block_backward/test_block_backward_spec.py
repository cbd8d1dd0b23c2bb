"""The gradients of the transformer block: against central differences and autograd, tolerance, costs."""

import itertools

import numpy as np
import pytest
from block_fixtures import GROUPED, block
from gradient_fixtures import by_differences

from advisor.kernels import attention
from advisor.kernels.block_backward import spec as module
from advisor.kernels.block_backward.spec import SPEC
from advisor.kernels.judge import relative_error
from advisor.kernels.transformer import WEIGHTS


def checked(problem, draw="normal", seed=1):
    inputs = SPEC.inputs(problem, seed, draw)
    return inputs, SPEC.reference(problem, inputs)


def by_autograd(inputs, shape, kind):
    """All gradients by PyTorch in some precision, in the order of SPEC.written."""
    torch = pytest.importorskip("torch")
    of, heads, shared = torch.nn.functional, shape["heads"], shape["kv_heads"]
    known = {name: torch.from_numpy(array.astype(kind)) for name, array in inputs.items()}
    leaves = x, g1, wqkv, wo, g2, wg, wu, wd = [known[name].requires_grad_() for name in ("x", *WEIGHTS)]
    batch, n, width = x.shape
    qkv = of.linear(of.rms_norm(x, (width,), g1, 1e-5), wqkv).view(batch, n, -1, shape["head_dim"]).transpose(1, 2)
    q, k, v = qkv.split([heads, shared, shared], 1)
    out = of.scaled_dot_product_attention(q, k, v, is_causal=bool(shape["causal"]), enable_gqa=True)
    middle = x + of.linear(out.transpose(1, 2).reshape(batch, n, -1), wo)
    normal = of.rms_norm(middle, (width,), g2, 1e-5)
    y = middle + of.linear(of.silu(of.linear(normal, wg)) * of.linear(normal, wu), wd)
    return dict(zip(SPEC.written, (one.numpy() for one in torch.autograd.grad(y, leaves, known["gy"])), strict=True))


def shares(found, expected):
    """Output -> its error over its tolerance."""
    return {name: relative_error(found[name], one.values) / one.tolerance for name, one in expected.items()}


@pytest.mark.parametrize(
    "shape",
    [
        {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 2, "d_model": 3, "d_ff": 2, "causal": 0},
        {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 2, "d_model": 3, "d_ff": 4, "causal": 1},
    ],
)
def test_the_reference_agrees_with_central_differences(shape):
    problem = SPEC.problem(4, "float64", **shape)
    inputs, expected = checked(problem)
    for name in ("x", *WEIGHTS):
        found = by_differences(lambda moved: block(moved, shape), inputs, name)
        assert relative_error(found, expected[f"g{name}"].values) < 1e-6, name


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [{}, GROUPED])
def test_autograd_agrees_with_the_reference(shape, draw):
    problem = SPEC.problem(9, "float64", **shape)
    inputs, expected = checked(problem, draw)
    found = by_autograd(inputs, problem.dims(), np.float64)
    assert max(relative_error(found[name], one.values) for name, one in expected.items()) < 1e-11


def test_blocks_of_the_reference_add_up(monkeypatch):
    problem = SPEC.problem(33, "float64", **{**GROUPED, "batch": 2, "d_ff": 50})
    inputs, whole = checked(problem)
    monkeypatch.setattr(attention, "ROWS_AT_ONCE", 8)
    monkeypatch.setattr(module, "WITHIN_AT_ONCE", 7)
    for name, one in SPEC.reference(problem, inputs).items():
        assert relative_error(one.values, whole[name].values) < 1e-12
        assert whole[name].tolerance / 3 < one.tolerance < 5 * whole[name].tolerance, name


def test_of_large_weights_chosen_outputs_are_known(monkeypatch):
    problem = SPEC.problem(9, "float64", **{**GROUPED, "d_model": 210, "d_ff": 220})
    inputs, whole = checked(problem)
    monkeypatch.setattr(module, "SAMPLED_WEIGHTS", 1)
    monkeypatch.setattr(module, "WITHIN_AT_ONCE", 50)
    some = SPEC.reference(problem, inputs)
    assert [name for name, one in some.items() if one.rows is not None] == ["gwqkv", "gwo", "gwg", "gwu"]
    assert [name for name, one in some.items() if one.columns is not None] == ["gwd"]
    assert len(some["gwg"].rows) < 100
    for name, one in some.items():
        rows = slice(None) if one.rows is None else one.rows
        known = whole[name].values[rows] if one.columns is None else whole[name].values[:, one.columns]
        assert relative_error(one.values, known) < 1e-12, name


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [{}, GROUPED, {"d_model": 1, "d_ff": 1}, {"batch": 1, "d_model": 256, "d_ff": 512}])
def test_rounding_stays_inside_the_tolerance(shape, draw):
    problem = SPEC.problem(33, "float32", **shape)
    inputs, expected = checked(problem, draw)
    assert max(shares(by_autograd(inputs, problem.dims(), np.float32), expected).values()) <= 1


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("what", ["causal", "row", "heads"])
def test_what_is_wrong_is_outside_of_it(what, draw):
    """Rows that are not to be seen, one row left out, heads of k exchanged."""
    problem = SPEC.problem(33, "float32", **GROUPED)
    inputs, expected = checked(problem, draw)
    wrong, shape = {name: array.astype(np.float64) for name, array in inputs.items()}, problem.dims()
    if what == "causal":
        shape = {**shape, "causal": 0}
    elif what == "row":
        wrong["gy"][0, 17] = 0
    else:
        keys = wrong["wqkv"][32:48].copy()
        wrong["wqkv"][32:40], wrong["wqkv"][40:48] = keys[8:], keys[:8]
    assert min(shares(by_autograd(wrong, shape, np.float64), expected).values()) > 8


@pytest.mark.parametrize(
    ("shape", "draw"),
    [*itertools.product(({}, GROUPED), SPEC.draws), ({"batch": 1, "d_model": 256, "d_ff": 512}, "normal")],
)
def test_a_result_a_tenth_too_small_is_outside_of_it(shape, draw):
    _, expected = checked(SPEC.problem(17, "float32", **shape), draw)
    assert min(shares({name: 0.9 * one.values for name, one in expected.items()}, expected).values()) > 3


def test_costs():
    problem = SPEC.problem(256, batch=2)
    matrices = 4 * 64 * 64 + 3 * 64 * 256
    assert SPEC.elements(problem) == (2 * 512 * 64 + matrices + 128, 512 * 64 + matrices + 128)
    rows = 6 * matrices - 2 * 64 * 256 + 2 * (16 * 64 + 12) + 13 * 256 + 3 * 64
    assert SPEC.flops(problem) == 512 * rows + 2 * (256 * 256 * (14 * 64 + 9) + 3 * 256 * 64)
    assert SPEC.constant == (), "weights that are trained may not be prepared"
