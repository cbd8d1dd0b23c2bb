"""Every C variant of backward against the DNF: shapes, knobs, teams, outliers, scratch and small stacks."""

import pytest
from attention_fixtures import (
    Case,
    check,
    check_everywhere,
    check_knobs,
    default_knobs,
    needs_compiler,
    run_on_small_stacks,
    scratch_bytes,
    variant,
)

from advisor.kernels.backward.spec import SPEC
from advisor.kernels.variant import variants

PLAIN = ("stored", "recomputed")
TILED = ("owners", "persisted", "partial")
WITHOUT_P = ("recomputed", "owners", "partial")

pytestmark = needs_compiler


def case(name, problem, threads=2):
    one = variant("backward", name)
    return Case("backward", one, problem, default_knobs(one, problem), threads)


def test_the_ladder_and_its_order():
    names = [one.name for one in variants("backward") if one.name in PLAIN + TILED]
    assert names == ["partial", "persisted", "owners", "recomputed", "stored"]
    assert default_knobs(variant("backward", "partial"), SPEC.problem(5, head_dim=7)) is None, "vectors along head_dim"
    assert default_knobs(variant("backward", "owners"), SPEC.problem(5, head_dim=7)) is not None
    assert default_knobs(variant("backward", "stored"), SPEC.problem(5, head_dim=8192)) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PLAIN + TILED)
def test_shapes_and_teams(name, dtype):
    assert check_everywhere("backward", name, dtype) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", TILED)
def test_every_knob(name):
    check_knobs("backward", name, SPEC.problem(131, heads=2, kv_heads=1, causal=1))


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_sums_of_every_team_are_merged(threads):
    """One strip only: most threads add nothing, and what they hold must not be what lay in the workspace."""
    check(case("partial", SPEC.problem(9), threads))
    check(case("partial", SPEC.problem(100, heads=6, kv_heads=3, causal=1), threads))


@pytest.mark.parametrize("name", ["partial", "persisted"])
def test_more_heads_than_one_wave(name):
    check(case(name, SPEC.problem(49, batch=40, heads=2, kv_heads=1), 2))


def test_only_those_with_p_ask_for_memory_of_order_n_squared():
    growth = {
        name: scratch_bytes("backward", name, 8192) / scratch_bytes("backward", name, 4096) for name in PLAIN + TILED
    }
    assert all(growth[name] <= 2 for name in WITHOUT_P), growth
    assert growth["stored"] == 4
    assert growth["persisted"] > 3.9


@pytest.mark.parametrize("name", PLAIN)
def test_wide_rows_on_small_stacks(name):
    """Batch 2, n 64, head_dim 8192: 8 MiB an array, where sums on the stack would crash."""
    assert run_on_small_stacks(case(name, SPEC.problem(64, "float64", head_dim=8192))) == 0


@pytest.mark.parametrize("name", TILED)
def test_many_rows_on_small_stacks(name):
    assert run_on_small_stacks(case(name, SPEC.problem(256, "float64", batch=52, head_dim=80), 3), part=4) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TILED)
def test_long_heads_on_small_stacks(name):
    """As the paper's shape at n = 8192, 8 MiB an array, on stacks that are as small beside it."""
    assert run_on_small_stacks(case(name, SPEC.problem(2048, "float64"), 3), part=4) == 0
