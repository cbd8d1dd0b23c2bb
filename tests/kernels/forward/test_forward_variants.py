"""The C variants of forward against the DNF: shapes, knobs, teams, outliers, scratch and small stacks."""

import pytest
from attention_fixtures import (
    Case,
    check_everywhere,
    check_knobs,
    default_knobs,
    needs_compiler,
    run_on_small_stacks,
    scratch_bytes,
    variant,
)

from advisor.kernels.forward.spec import SPEC
from advisor.kernels.variant import variants

ALL = ("naive", "rows", "tiled")

pytestmark = needs_compiler


def case(name, problem, threads=2):
    one = variant("forward", name)
    return Case("forward", one, problem, default_knobs(one, problem), threads)


def test_the_ladder_and_its_order():
    assert [one.name for one in variants("forward") if one.name in ALL] == ["tiled", "rows", "naive"]
    assert default_knobs(variant("forward", "rows"), SPEC.problem(5, head_dim=8192)) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ALL)
def test_shapes_and_teams(name, dtype):
    assert check_everywhere("forward", name, dtype) >= 20


@pytest.mark.slow
def test_every_knob_of_tiled():
    check_knobs("forward", "tiled", SPEC.problem(131, heads=2, kv_heads=1, causal=1))


def test_only_naive_asks_for_memory_of_order_n_squared():
    growth = {name: scratch_bytes("forward", name, 8192) / scratch_bytes("forward", name, 4096) for name in ALL}
    assert growth == {"naive": 4, "rows": 2, "tiled": 1}


@pytest.mark.parametrize("name", ["naive", "rows"])
def test_wide_rows_on_small_stacks(name):
    assert run_on_small_stacks(case(name, SPEC.problem(64, "float64", head_dim=8192))) == 0


def test_many_rows_on_small_stacks():
    assert run_on_small_stacks(case("tiled", SPEC.problem(256, "float64", batch=52, head_dim=80), 3)) == 0
