"""The DNF of decode: the reference against plain loops, and its formulas against hand counts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import BadInput
from advisor.kernels.decode import spec as decode
from advisor.kernels.decode.spec import SPEC
from advisor.kernels.spec import Elements


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
    np.testing.assert_allclose(SPEC.reference(problem, inputs)["out"], plain(inputs, sharing), rtol=1e-12, atol=1e-13)


def test_reference_does_not_depend_on_its_blocks(monkeypatch):
    problem = SPEC.problem(1000, heads=4, kv_heads=2, head_dim=16)
    inputs = SPEC.inputs(problem, 3)
    whole = SPEC.reference(problem, inputs)["out"]
    monkeypatch.setattr(decode, "ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(SPEC.reference(problem, inputs)["out"], whole, rtol=1e-12, atol=1e-14)


def test_reference_stands_large_scores():
    problem = SPEC.problem(3, batch=1, head_dim=2)
    inputs = {
        "q": np.full((1, 1, 2), 1e4, np.float32),
        "k": np.array([[[[1, 1], [-1, -1], [1, 0]]]], np.float32),
        "v": np.array([[[[1, 2], [3, 4], [5, 6]]]], np.float32),
    }
    assert SPEC.reference(problem, inputs)["out"].tolist() == [[[1.0, 2.0]]]


def test_inputs_are_standard_normal_and_depend_on_the_seed_alone(monkeypatch):
    problem = SPEC.problem(4096, heads=2)
    first = SPEC.inputs(problem, 5)
    monkeypatch.setattr(decode, "FILL_THREADS", 1)
    again, other = SPEC.inputs(problem, 5), SPEC.inputs(problem, 6)
    for name in ("q", "k", "v"):
        assert first[name].dtype == np.float32
        assert first[name].flags.c_contiguous
        assert np.array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])
    assert abs(first["k"].mean()) < 6 / math.sqrt(first["k"].size)
    assert abs(first["k"].std() - 1) < 6 / math.sqrt(2 * first["k"].size)
    assert not np.array_equal(first["k"], first["v"])


def test_large_inputs_go_on_with_rotations_that_repeat_no_row_in_place(monkeypatch):
    monkeypatch.setattr(decode, "BANK_ELEMENTS", 1000)
    found = decode.normals((4321,), np.random.SeedSequence(1))
    bank = found[:1000]
    assert np.isin(found, bank).all()
    pieces = [found[start : start + 1000] for start in range(0, 4000, 1000)]
    assert all(np.array_equal(np.sort(piece), np.sort(bank)) for piece in pieces)
    assert not any(np.array_equal(piece, bank) for piece in pieces[1:])


def test_elements_and_flops_by_hand():
    problem = SPEC.problem(10, batch=2, heads=6, kv_heads=3, head_dim=4)
    assert SPEC.elements(problem) == Elements(read=2 * 6 * 4 + 2 * (2 * 3 * 10 * 4), written=2 * 6 * 4)
    assert SPEC.flops(problem) == 2 * 6 * (10 * (4 * 4 + 4) + 4)


def test_tolerance_is_the_derived_formula():
    u = 2.0**-24
    score = 6 * math.sqrt(66) * u * 14**2 / 8
    assert SPEC.tolerance(SPEC.problem(10_000)) == pytest.approx(2 * (score + 5 * u + 6 * 100 * u) + u, rel=1e-12)


def test_tolerance_grows_with_both_reductions_and_stays_under_what_matters():
    at = [SPEC.tolerance(SPEC.problem(n, head_dim=d)) for n, d in ((64, 64), (4096, 64), (4096, 128), (1 << 20, 128))]
    assert at == sorted(at)
    # out of n rows is of order 1 / sqrt(n) and its largest element three times that: a zero must not pass for it
    assert at[-1] < 1 / math.sqrt(1 << 20)


def test_a_missing_row_is_over_the_tolerance():
    problem = SPEC.problem(1000)
    inputs = SPEC.inputs(problem, 0)
    short = {**inputs, "k": inputs["k"][:, :, :-1], "v": inputs["v"][:, :, :-1]}
    wrong = SPEC.reference(SPEC.problem(999), short)["out"] - SPEC.reference(problem, inputs)["out"]
    assert np.abs(wrong).max() > SPEC.tolerance(problem)


def test_edges_hold_the_sizes_and_shapes_that_break_kernels():
    edges = SPEC.edges()
    assert {edge.n for edge in edges} >= {1, 2, 3, 63, 64, 65, 1000}
    groups = {edge.dims()["heads"] // edge.dims()["kv_heads"] for edge in edges}
    assert groups >= {1, 3, 4, 5, 7}
    assert any(edge.dims()["head_dim"] % 2 for edge in edges)
    assert len(set(edges)) == len(edges)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(BadInput, match="multiple of kv_heads"):
        SPEC.problem(8, heads=6, kv_heads=4)


def test_outputs_and_label():
    problem = SPEC.problem(8, batch=3, heads=8, kv_heads=2, head_dim=16)
    assert SPEC.outputs(problem) == {"out": (3, 8, 16)}
    assert SPEC.shape_label(problem.shape) == "batch 3, heads 8:2, head_dim 16"
