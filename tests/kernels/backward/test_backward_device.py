"""backward/device.py with numpy in the place of a device: what spec.py says, in every dtype; what tolerances allow."""

import numpy as np
import pytest

from advisor.kernels.backward import device
from advisor.kernels.backward.spec import SPEC
from advisor.kernels.judge import relative_error
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import STORAGE

SHARED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 16, "causal": 1}
DTYPES = ("float64", "float32", "bfloat16", "float16")


@pytest.mark.parametrize("draw", ["normal", "outlier"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_of_a_device_is_that_of_the_host(dtype, draw):
    problem = SPEC.problem(270, dtype, **SHARED)
    inputs = SPEC.inputs(problem, 3, draw)
    mine, wanted = device.reference(np, problem, inputs), SPEC.reference(problem, inputs)
    assert list(mine) == list(wanted) == list(SPEC.written)
    for name, one in wanted.items():
        assert np.abs(mine[name].values - one.values).max() <= 1e-12 * max(1, np.abs(one.values).max()), name
        assert mine[name].tolerance == pytest.approx(one.tolerance)
        assert mine[name].cache_tolerance == pytest.approx(one.cache_tolerance)
        assert mine[name].cache_tolerance > mine[name].tolerance


@pytest.mark.parametrize("draw", ["normal", "outlier"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_of_a_device_are_stored_as_the_spec_says(dtype, draw):
    problem = SPEC.problem(70, dtype, **SHARED)
    made, wanted = device.inputs(np, problem, 3, draw), SPEC.inputs(problem, 3, draw)
    assert list(made) == list(wanted)
    for name, one in made.items():
        assert one.dtype == wanted[name].dtype == STORAGE[SPEC.types(problem)[name]], name
        assert one.shape == wanted[name].shape
    exact = SPEC.widened(problem, made)
    again = SPEC.reference(problem, made)
    assert all(np.isfinite(expected.values).all() for expected in again.values())
    assert np.abs(exact["out"]).max() <= np.abs(exact["v"]).max() * 1.01, "a mean of rows of v"


def test_gradients_of_outlier_scale_fit_float16():
    problem = SPEC.problem(1000, "float16", batch=1)
    for one in SPEC.reference(problem, SPEC.inputs(problem, 1, "outlier")).values():
        assert np.abs(one.values).max() < 65504 / 4


def rounded(problem, inputs, cached):
    """Gradients of one causal head in float64, P and GS rounded to the storage (`cached`) or not; results are."""
    exact = {name: one[0, 0].astype(np.float64) for name, one in SPEC.widened(problem, inputs).items()}
    q, k, v, out, gout = (exact[name] for name in ("q", "k", "v", "out", "gout"))

    def stored(array):
        return widen(narrow(array.astype(np.float32), problem.dtype), problem.dtype).astype(np.float64)

    keep = stored if cached else lambda array: array
    scale = q.shape[1] ** -0.5
    p = keep(np.tril(np.exp(q @ k.T * scale - exact["lse"][:, None])))
    gs = keep(p * (gout @ v.T - (gout * out).sum(axis=1, keepdims=True)))
    found = {"gq": gs @ k * scale, "gk": gs.T @ q * scale, "gv": p.T @ gout}
    return {name: stored(values)[None, None] for name, values in found.items()}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("n", "draw"), [(2, "normal"), (131, "normal"), (131, "outlier"), (400, "normal")])
def test_rounding_to_sixteen_bits_is_what_the_tolerances_allow(n, draw, dtype):
    problem = SPEC.problem(n, dtype, batch=1, causal=1)
    inputs = SPEC.inputs(problem, 5, draw)
    wanted = SPEC.reference(problem, inputs)
    plain, cached = rounded(problem, inputs, False), rounded(problem, inputs, True)
    for name, one in wanted.items():
        assert relative_error(plain[name], one.values) < one.tolerance, name
        assert relative_error(cached[name], one.values) < one.cache_tolerance, name


@pytest.mark.parametrize("name", ["gq", "gk", "gv"])
def test_a_left_out_tile_is_over_what_rounding_allows(name):
    problem = SPEC.problem(131, "bfloat16", batch=1, causal=1)
    inputs = SPEC.inputs(problem, 5)
    wanted = SPEC.reference(problem, inputs)[name]
    wrong = dict(inputs)
    for key in ("gout", "k") if name == "gq" else ("gout",):  # 16 rows add nothing
        wrong[key] = inputs[key].copy()
        wrong[key][:, :, 32:48] = 0
    error = relative_error(rounded(problem, wrong, True)[name], wanted.values)
    assert error > wanted.cache_tolerance
