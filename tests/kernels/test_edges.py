"""Edge problems on the way to a problem."""

from __future__ import annotations

import kernel_fixtures as fixtures

from advisor.kernels.edges import edges


def test_none_over_the_problems_own_n_and_smallest_first():
    variant = fixtures.good("plain")
    found = edges(fixtures.scale(), variant, fixtures.problem(17), variant.defaults)
    assert [edge.problem.n for edge in found] == [1, 2, 3, 7]
    assert {edge.problem.dtype for edge in found} == {"float32"}


def test_those_of_another_shape_are_checked_where_the_same_binary_computes_them():
    problem = fixtures.problem(3, width=8)
    plain, rows = fixtures.good("plain"), fixtures.good("rows")
    shapes = {edge.problem.dims()["width"] for edge in edges(fixtures.scale(), plain, problem, plain.defaults)}
    assert shapes == {8, 16}
    fixed = {edge.problem.dims()["width"] for edge in edges(fixtures.scale(), rows, problem, rows.defaults)}
    assert fixed == {8}


def test_dims_carry_the_run_knobs():
    rows = fixtures.good("rows")
    found = edges(fixtures.scale(), rows, fixtures.problem(2), (("ADV_STEP", 4), ("block", 64)))
    assert [edge.dims for edge in found] == [(16, 1, 64)]
