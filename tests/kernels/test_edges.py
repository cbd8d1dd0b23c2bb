"""Edge problems on the way to a problem."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest

from advisor.kernels import registry
from advisor.kernels.edges import FEW_KEYS, FURTHER, edges
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import knob_sets, variants


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


@pytest.mark.parametrize(
    ("kernel", "n", "shape"),
    [
        ("forward", 2048, {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128, "causal": 1}),
        ("backward", 2048, {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "causal": 1}),
        ("fused", 8192, {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128, "causal": 0}),
        ("mlp", 512, {"batch": 1, "d_model": 4096, "d_ff": 14336}),
        ("block", 512, {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128, "d_model": 4096, "d_ff": 14336}),
        ("decode", 65536, {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}),
        ("rmsnorm", 4096, {"batch": 1, "d_model": 4096}),
    ],
)
def test_every_choice_of_a_device_is_checked_past_a_tile_of_its_own_shape(kernel, n, shape):
    spec = registry.spec(kernel)
    for dtype in ("float32", "bfloat16"):
        problem = spec.problem(n, dtype, "cold", **shape)
        further = set()
        for variant in variants(kernel, (), GPU_LANGUAGES):
            for knobs in knob_sets(variant, problem):
                own = [e for e in edges(spec, variant, problem, knobs) if e.problem.shape == problem.shape]
                last = own[-1].problem
                assert last.n > 128, (variant.name, knobs)
                assert last.n % 2
                assert {e.draw for e in own if e.problem == last} == set(spec.draws)
                further.add(last.n)
        assert further <= set(FURTHER)  # the same on the way to every n: made once


def test_few_keys_are_an_edge_of_a_device_only_where_rows_attend_to_rows_and_nothing_is_listed():
    def own(kernel, n, **shape):
        spec = registry.spec(kernel)
        problem = spec.problem(n, "bfloat16", "cold", batch=1, **shape)
        able = [v for v in variants(kernel, (), ("torch",)) if knob_sets(v, problem)]
        return [{e.problem.n for e in edges(spec, v, problem, knob_sets(v, problem)[0])} for v in able]

    wide = {"d_model": 4096, "d_ff": 14336}
    assert all({FEW_KEYS, 131} == sizes for sizes in own("block", 512, heads=32, kv_heads=8, head_dim=128, **wide))
    assert all({131} == sizes for sizes in own("mlp", 512, **wide))
    narrow = own("forward", 2048, heads=16, kv_heads=16, head_dim=128)
    assert narrow
    assert all({2, 17} < sizes and FEW_KEYS not in sizes for sizes in narrow)
    assert all(max(sizes) < FEW_KEYS for sizes in own("block", FEW_KEYS, heads=32, kv_heads=8, head_dim=128, **wide))


def test_a_device_has_no_further_edge_where_the_problem_is_one_itself_and_cpus_have_none():
    forward = registry.spec("forward")
    (lane,) = [one for one in variants("forward", (), ("cuda",)) if one.name == "lane_global"]
    problem = forward.problem(301, batch=1, heads=1, kv_heads=1, head_dim=64, causal=1)
    assert all(edge.problem.n < 301 for edge in edges(forward, lane, problem, lane.defaults))
    assert max(e.problem.n for e in edges(forward, lane, problem._replace(n=302), lane.defaults)) == 259
    assert max(e.problem.n for e in edges(forward, lane, problem._replace(n=128), lane.defaults)) == 67
    (tiled,) = [one for one in variants("forward") if one.name == "tiled"]
    listed = {edge.n for edge in forward.edges()}
    assert {e.problem.n for e in edges(forward, tiled, problem._replace(n=302), tiled.defaults)} <= listed
