"""The float64 reference of attention forward: against a plain softmax, sampled rows, and what its tolerance notices."""

import math

import numpy as np
import pytest

from advisor.errors import BadInput
from advisor.kernels import attention
from advisor.kernels.attention import dims_of
from advisor.kernels.backward import spec as backward
from advisor.kernels.forward.spec import SPEC
from advisor.kernels.judge import relative_error
from advisor.kernels.sixteen import narrow, widen

SHAPES = ({"batch": 2}, {"causal": 1, "batch": 1}, {"heads": 6, "kv_heads": 2, "causal": 1, "batch": 1, "head_dim": 16})


def plainly(problem, inputs):
    """out, one query row at a time, straight from the formula."""
    m = dims_of(problem)
    out = np.empty((m.batch, m.heads, m.n, m.head_dim))
    for b, h, i in np.ndindex(out.shape[:3]):
        seen = i + 1 if m.causal else m.n
        k, v = (inputs[name][b, h // m.sharing, :seen].astype(np.float64) for name in ("k", "v"))
        weights = np.exp(k @ inputs["q"][b, h, i].astype(np.float64) / math.sqrt(m.head_dim))
        out[b, h, i] = weights @ v / weights.sum()
    return out


def without_keys(problem, inputs, first, count):
    """out of a kernel that skips some rows of k and v."""
    left = np.r_[0:first, first + count : problem.n]
    kept = {"q": inputs["q"], "k": inputs["k"][:, :, left], "v": inputs["v"][:, :, left]}
    m = dims_of(problem)
    out = np.empty(SPEC.shapes(problem)["out"])
    for b, h, head in attention.heads_of(m, kept):
        out[b, h] = attention.attend(head, np.arange(m.n)).out
    return out


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 2, 17, 300])
def test_out_is_what_the_formula_says(n, shape):
    problem = SPEC.problem(n, "float64", **shape)
    inputs = SPEC.inputs(problem, 1)
    assert np.abs(attention.forward(dims_of(problem), inputs)[0] - plainly(problem, inputs)).max() < 1e-13


def test_log_sums_make_weights_that_sum_to_one():
    problem = SPEC.problem(40, "float64", causal=1)
    inputs = SPEC.inputs(problem, 1)
    lse = attention.forward(dims_of(problem), inputs)[1]
    scores = inputs["q"] @ inputs["k"].swapaxes(2, 3) / 8
    weights = np.exp(scores - lse[..., None]) * np.tri(40)
    assert np.abs(weights.sum(axis=-1) - 1).max() < 1e-13


@pytest.mark.parametrize("shape", SHAPES)
def test_chosen_rows_are_those_of_the_whole(monkeypatch, shape):
    problem = SPEC.problem(300, **shape)
    inputs = SPEC.inputs(problem, 1)
    whole = SPEC.reference(problem, inputs)["out"]
    monkeypatch.setattr(attention, "SAMPLED_FLOPS", 0)
    some = SPEC.reference(problem, inputs)["out"]
    assert some.rows is not None
    assert some.tolerance == whole.tolerance
    rows = whole.values.reshape(-1, whole.values.shape[-1])[some.rows]
    assert np.abs(rows - some.values).max() < 1e-13
    assert {0, 64, 299} <= set(some.rows.tolist())


@pytest.mark.parametrize("n", [1, 2, 30, 8192])
def test_sampled_rows_lie_in_range_and_hold_the_ends(n):
    rows = attention.sampled(dims_of(SPEC.problem(n)))
    assert (np.diff(rows) > 0).all()
    assert rows[0] == 0
    assert rows[-1] == n - 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [131, 2048])
def test_a_skipped_block_of_keys_is_over_the_tolerance(n, dtype):
    """16 of n rows of k and v left out, as a loop with a wrong bound would."""
    problem = SPEC.problem(n, dtype, batch=1)
    inputs = SPEC.inputs(problem, 1)
    wanted = SPEC.reference(problem, inputs)["out"]
    assert relative_error(without_keys(problem, inputs, n // 2, 16), wanted.values) > 10 * wanted.tolerance
    assert relative_error(wanted.values.astype(dtype), wanted.values) < wanted.tolerance


@pytest.mark.parametrize("draw", ["normal", "outlier"])
def test_arithmetic_in_float32_is_inside_the_tolerance(draw):
    """Numpy's own float32, step by step."""
    problem = SPEC.problem(300)
    inputs = SPEC.inputs(problem, 1, draw)
    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    scores = q @ k.swapaxes(2, 3) / np.float32(8)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = (weights / weights.sum(axis=-1, keepdims=True)) @ v
    wanted = SPEC.reference(problem, inputs)["out"]
    assert out.dtype == np.float32
    assert relative_error(out, wanted.values) < wanted.tolerance


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("draw", ["normal", "outlier"])
def test_sixteen_bits_allow_for_the_stored_result_and_no_more(dtype, draw):
    """A float32 result that is rounded once fits; rounded weights fit the looser bound alone."""
    problem = SPEC.problem(300, dtype, batch=1)
    inputs = SPEC.inputs(problem, 1, draw)
    wanted = SPEC.reference(problem, inputs)["out"]
    out = widen(narrow(wanted.values.astype(np.float32), dtype), dtype)
    assert relative_error(out, wanted.values) <= wanted.tolerance
    assert wanted.tolerance < wanted.cache_tolerance
    q, k, v = (widen(inputs[name], dtype).astype(np.float64) for name in ("q", "k", "v"))
    weights = np.exp((q @ k.swapaxes(2, 3)) / 8)
    weights /= weights.max(axis=-1, keepdims=True)
    rounded = widen(narrow(weights.astype(np.float32), dtype), dtype).astype(np.float64)
    loose = rounded @ v / weights.sum(axis=-1, keepdims=True)
    loose = widen(narrow(loose.astype(np.float32), dtype), dtype)
    assert relative_error(loose, wanted.values) <= wanted.cache_tolerance


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_notice_a_skipped_block_of_keys(dtype):
    problem = SPEC.problem(131, dtype, batch=1)
    inputs = SPEC.inputs(problem, 1)
    wanted = SPEC.reference(problem, inputs)["out"]
    left = without_keys(problem, SPEC.widened(problem, inputs), 65, 16)
    assert relative_error(left, wanted.values) > 3 * wanted.cache_tolerance


def test_what_is_stored_as_it_was_computed_needs_no_room_for_storage():
    assert attention.stored(1e-5, "float32") == 1e-5
    assert attention.stored(1e-5, "bfloat16") == pytest.approx(2.0**-8 + 1e-5, rel=1e-4)
    assert attention.stored(0.0, "float16") == 2.0**-11 + 2.0**-25


def test_lse_is_not_stored_in_sixteen_bits():
    types = backward.SPEC.types(backward.SPEC.problem(3, "bfloat16"))
    assert types["lse"] == "float32"
    assert {kind for name, kind in types.items() if name != "lse"} == {"bfloat16"}


def test_the_papers_bytes():
    """M_fwd = 4nd + n^2, times batch and 8 bytes: 75.497 MB at n = 2048, D = 64, batch 2."""
    moved = SPEC.elements(SPEC.problem(2048, "float64", batch=2, head_dim=64))
    assert (moved.read + moved.written) * 8 == 75_497_472


@pytest.mark.parametrize("shape", [{"heads": 3, "kv_heads": 2}, {"causal": 2}])
def test_shapes_that_make_no_sense_are_refused(shape):
    with pytest.raises(BadInput):
        SPEC.problem(5, **shape)
