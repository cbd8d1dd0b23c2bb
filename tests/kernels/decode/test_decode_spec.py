"""The DNF of decode: the reference against plain loops, 16-bit caches, and its formulas against hand counts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import BadInput
from advisor.kernels.decode import spec as decode
from advisor.kernels.decode.spec import SPEC
from advisor.kernels.sixteen import widen
from advisor.kernels.spec import Elements


def answer(problem, inputs):
    """The values that the reference expects of out."""
    return SPEC.reference(problem, inputs)["out"].values


def tolerance(problem, inputs):
    """What the reference allows out to be wrong by."""
    return SPEC.reference(problem, inputs)["out"].tolerance


def plain(inputs, sharing):
    """Decode attention as three loops over Python floats."""
    q, k, v = (inputs[name].astype(float).tolist() for name in ("q", "k", "v"))
    out = []
    for b, queries in enumerate(q):
        rows = []
        for h, query in enumerate(queries):
            keys, values = k[b][h // sharing], v[b][h // sharing]
            scores = [sum(x * y for x, y in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys]
            weights = [math.exp(score - max(scores)) for score in scores]
            total = sum(weights)
            columns = zip(*values, strict=True)
            rows.append([sum(w * x for w, x in zip(weights, c, strict=True)) / total for c in columns])
        out.append(rows)
    return np.array(out)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 17), st.integers(0, 99)
)
def test_reference_is_the_plain_formula(batch, kv_heads, sharing, head_dim, n, seed):
    problem = SPEC.problem(n, batch=batch, heads=kv_heads * sharing, kv_heads=kv_heads, head_dim=head_dim)
    inputs = SPEC.inputs(problem, seed)
    np.testing.assert_allclose(answer(problem, inputs), plain(inputs, sharing), rtol=1e-12, atol=1e-13)


def test_reference_does_not_depend_on_its_blocks(monkeypatch):
    problem = SPEC.problem(1000, heads=4, kv_heads=2, head_dim=16)
    inputs = SPEC.inputs(problem, 3)
    whole = answer(problem, inputs)
    monkeypatch.setattr(decode, "ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(answer(problem, inputs), whole, rtol=1e-12, atol=1e-14)


def test_reference_stands_large_scores():
    problem = SPEC.problem(3, batch=1, head_dim=2)
    inputs = {
        "q": np.full((1, 1, 2), 1e4, np.float32),
        "k": np.array([[[[1, 1], [-1, -1], [1, 0]]]], np.float32),
        "v": np.array([[[[1, 2], [3, 4], [5, 6]]]], np.float32),
    }
    assert answer(problem, inputs).tolist() == [[[1.0, 2.0]]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_16_bit_cache_is_rounded_first_and_then_exact(dtype):
    """The reference answers for what the cache holds: the same as float32 numbers give the same answer."""
    shape = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 16}
    stored = SPEC.inputs(SPEC.problem(50, dtype, **shape), 3)
    wide = {name: widen(array, dtype) if name in ("k", "v") else array for name, array in stored.items()}
    full = SPEC.inputs(SPEC.problem(50, "float32", **shape), 3)
    here = SPEC.reference(SPEC.problem(50, dtype, **shape), stored)["out"]
    there = SPEC.reference(SPEC.problem(50, "float32", **shape), wide)["out"]
    assert np.array_equal(here.values, there.values)
    assert here.tolerance == there.tolerance
    assert stored["k"].itemsize == stored["v"].itemsize == 2
    assert stored["q"].dtype == np.float32
    relative = np.abs(wide["k"] / full["k"] - 1).max()
    assert 0.4 * 2.0**-8 < relative * (1 if dtype == "bfloat16" else 8) <= 2.0**-8


def test_types_and_bytes_follow_the_storage():
    problem = SPEC.problem(8, "float16", batch=3, heads=8, kv_heads=2, head_dim=16)
    assert SPEC.types(problem) == {"q": "float32", "k": "float16", "v": "float16", "out": "float32"}
    assert set(SPEC.types(problem._replace(dtype="float64")).values()) == {"float64"}
    assert SPEC.elements(problem) == SPEC.elements(problem._replace(dtype="float32"))


def test_inputs_of_both_draws():
    problem = SPEC.problem(500, batch=1, heads=8, kv_heads=2)
    normal, outlier = (SPEC.inputs(problem, 5, draw) for draw in SPEC.draws)
    assert np.array_equal(normal["k"], outlier["k"])
    assert np.abs(outlier["q"]).max() == pytest.approx(57)
    assert np.abs(outlier["v"]).max() == pytest.approx(144)
    assert np.abs(normal["q"]).max() < 10
    assert np.isfinite(SPEC.inputs(problem._replace(dtype="float16"), 5, "outlier")["v"]).all()


def test_elements_and_flops_by_hand():
    problem = SPEC.problem(10, batch=2, heads=6, kv_heads=3, head_dim=4)
    assert SPEC.elements(problem) == Elements(read=2 * 6 * 4 + 2 * (2 * 3 * 10 * 4), written=2 * 6 * 4)
    assert SPEC.flops(problem) == 2 * 6 * (10 * (4 * 4 + 4) + 4)


def test_tolerance_is_the_derived_formula():
    u = 2.0**-24
    q, k, v = (np.zeros((1, 1, *rest), np.float32) for rest in ((64,), (100, 64), (100, 64)))
    q[0, 0, 0], k[0, 0, 3, 1], v[0, 0, 7, 2] = 3, 8, -5
    score = 6 * math.sqrt(66) * u * (3 * 8) / 8
    found = tolerance(SPEC.problem(100, batch=1), {"q": q, "k": k, "v": v})
    assert found == pytest.approx((2 * (score + 5 * u + 6 * 10 * u) + u) * 5, rel=1e-12)


def test_tolerance_of_float64_is_that_of_its_roundoff():
    problem = SPEC.problem(64)
    inputs = SPEC.inputs(problem, 2)
    double = {name: array.astype(np.float64) for name, array in inputs.items()}
    ratio = tolerance(problem, inputs) / tolerance(problem._replace(dtype="float64"), double)
    assert ratio == pytest.approx(2.0**29, rel=1e-6)


def test_tolerance_stays_under_what_matters():
    """out of n rows shrinks as 1 / sqrt(n): a zero must not pass for it."""
    for n, d in ((64, 64), (4096, 64), (1 << 16, 128)):
        problem = SPEC.problem(n, batch=1, head_dim=d)
        found = SPEC.reference(problem, SPEC.inputs(problem, 0))["out"]
        assert found.tolerance < 0.2 * np.abs(found.values).max()


def test_a_missing_row_is_over_the_tolerance():
    problem = SPEC.problem(1000)
    inputs = SPEC.inputs(problem, 0)
    short = {**inputs, "k": inputs["k"][:, :, :-1], "v": inputs["v"][:, :, :-1]}
    wrong = answer(SPEC.problem(999), short) - answer(problem, inputs)
    assert np.abs(wrong).max() > tolerance(problem, inputs)


def test_edges_hold_the_sizes_and_shapes_that_break_kernels():
    edges = SPEC.edges()
    assert {edge.n for edge in edges} >= {1, 2, 3, 63, 64, 65, 1000}
    groups = {edge.dims()["heads"] // edge.dims()["kv_heads"] for edge in edges}
    assert groups >= {1, 3, 4, 5, 7}
    assert any(edge.dims()["head_dim"] % 2 for edge in edges)
    assert {edge.dtype for edge in edges} == {"float64", "float32", "bfloat16", "float16"}
    assert len(set(edges)) == len(edges)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(BadInput, match="multiple of kv_heads"):
        SPEC.problem(8, heads=6, kv_heads=4)


def test_shapes_and_label():
    problem = SPEC.problem(8, batch=3, heads=8, kv_heads=2, head_dim=16)
    cache = (3, 2, 8, 16)
    assert SPEC.shapes(problem) == {"q": (3, 8, 16), "k": cache, "v": cache, "out": (3, 8, 16)}
    assert SPEC.shape_label(problem.shape) == "batch 3, heads 8:2, head_dim 16"
