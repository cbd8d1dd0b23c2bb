"""Every C variant of fused against the DNF: shapes, knobs, teams, outliers, scratch and small stacks."""

import numpy as np
import pytest
from attention_fixtures import (
    Case,
    check,
    check_everywhere,
    check_knobs,
    default_knobs,
    needs_compiler,
    run,
    run_on_small_stacks,
    scratch_bytes,
    variant,
)

from advisor.kernels.fused.spec import SPEC
from advisor.kernels.variant import variants

TILED = ("owners", "partial", "kept", "pair")
ALL = ("naive", *TILED)

pytestmark = needs_compiler


def case(name, problem, threads=2):
    one = variant("fused", name)
    return Case("fused", one, problem, default_knobs(one, problem), threads)


def test_the_ladder_and_its_order():
    names = [one.name for one in variants("fused") if one.name in ALL]
    assert names == ["kept", "partial", "owners", "pair", "naive"]
    assert default_knobs(variant("fused", "kept"), SPEC.problem(5, head_dim=7)) is None, "vectors along head_dim"
    assert default_knobs(variant("fused", "owners"), SPEC.problem(5, head_dim=7)) is not None
    assert default_knobs(variant("fused", "naive"), SPEC.problem(5, head_dim=8192)) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ALL)
def test_shapes_and_teams(name, dtype):
    assert check_everywhere("fused", name, dtype) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", TILED)
def test_every_knob(name):
    check_knobs("fused", name, SPEC.problem(131, heads=2, kv_heads=1, causal=1))


@pytest.mark.parametrize("name", ["partial", "kept", "pair"])
def test_sums_of_every_team_are_merged(name):
    for threads in (1, 2, 5):
        check(case(name, SPEC.problem(9), threads))
        check(case(name, SPEC.problem(100, heads=6, kv_heads=3, causal=1), threads))
    check(case(name, SPEC.problem(49, batch=40, heads=2, kv_heads=1), 2))


def test_keeping_the_weights_of_a_strip_or_of_all_heads_gives_the_same_bits_on_one_thread():
    """Kept and pair do the same arithmetic: what tells them apart is where the weights lie."""
    problem = SPEC.problem(131, causal=1)
    inputs = SPEC.inputs(problem, 3)
    kept, pair = (run(case(name, problem, 1), inputs) for name in ("kept", "pair"))
    assert all(np.array_equal(kept[name], pair[name]) for name in SPEC.written)


def test_only_those_with_p_ask_for_memory_of_order_n_squared():
    growth = {name: scratch_bytes("fused", name, 8192) / scratch_bytes("fused", name, 4096) for name in ALL}
    assert all(growth[name] <= 2 for name in ("owners", "partial", "kept")), growth
    assert growth["naive"] == 4
    assert growth["pair"] > 3.9


def test_wide_rows_on_small_stacks():
    """Batch 2, n 64, head_dim 8192: 8 MiB an array, where sums on the stack would crash."""
    assert run_on_small_stacks(case("naive", SPEC.problem(64, "float64", head_dim=8192))) == 0


@pytest.mark.parametrize("name", TILED)
def test_many_rows_on_small_stacks(name):
    assert run_on_small_stacks(case(name, SPEC.problem(256, "float64", batch=52, head_dim=80), 3), part=4) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TILED)
def test_long_heads_on_small_stacks(name):
    """As the paper's shape at n = 8192, 8 MiB an array, on stacks that are as small beside it."""
    assert run_on_small_stacks(case(name, SPEC.problem(2048, "float64"), 3), part=4) == 0
