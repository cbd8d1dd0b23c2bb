"""Edge problems on the way to a problem."""

from __future__ import annotations

import kernel_fixtures as fixtures

from advisor.kernels import registry
from advisor.kernels.edges import edges
from advisor.kernels.variant import variants


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


def test_every_draw_of_the_kernel_is_an_edge():
    forward = registry.spec("forward")
    (tiled,) = [one for one in variants("forward") if one.name == "tiled"]
    problem = forward.problem(65, batch=1, heads=1, kv_heads=1, head_dim=64, causal=1)
    found = edges(forward, tiled, problem, tiled.defaults)
    assert len(found) == len(set(found))
    assert {edge.draw for edge in found} == set(forward.draws) == {"normal", "outlier"}
    of_draw = [{edge.problem for edge in found if edge.draw == draw} for draw in forward.draws]
    assert of_draw[0] == of_draw[1]
