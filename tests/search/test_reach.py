"""Which sizes a budget reaches, judged by the smaller ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tabling import ONE, machine, race

from advisor.kernels import registry
from advisor.search.reach import LEAST_CALLS, LOOK_CALLS, beyond, expected_s, within_reach

SPEC = registry.spec("decode")


def run_of(left_s, verdicts=(), limit_s=1e9, found=None):
    request = SimpleNamespace(machine=found or machine(), spec=SPEC, options=SimpleNamespace(trial_limit_s=limit_s))
    return SimpleNamespace(deadline=100.0 + left_s, clock=lambda: 100.0, request=request, verdicts=list(verdicts))


def problem(n):
    return race(n, {ONE: 1.0}).problem


RACED = [race(1024, {ONE: 1e6})]
"""One millisecond at n = 1024."""


def test_a_call_is_expected_to_grow_as_slowly_as_it_can():
    assert expected_s(run_of(1.0, RACED), problem(4096)) == pytest.approx(4e-3, rel=0.01)


def test_a_size_is_reached_where_a_few_dozen_calls_fit():
    need = LEAST_CALLS * expected_s(run_of(1.0, RACED), problem(4096))
    assert within_reach(run_of(1.01 * need, RACED), problem(4096))
    assert not within_reach(run_of(0.99 * need, RACED), problem(4096))
    assert not within_reach(run_of(100 * need, RACED, limit_s=4e-3), problem(4096))  # each look would be killed
    assert "n = 4096, 8192 left out" in beyond(run_of(0.0, RACED), [problem(4096), problem(8192)])


def test_without_a_budget_or_on_a_device_all_are_reached():
    assert within_reach(run_of(float("inf"), RACED), problem(1 << 30))
    assert within_reach(run_of(0.0, RACED, found=machine(limits_id="device")), problem(1 << 30))


def test_before_any_race_the_most_that_the_machine_might_do_is_assumed():
    small, large = (
        expected_s(run_of(1.0, found=machine(allowed_cpus=cpus)), problem(1 << 20)) for cpus in ((0,), (0, 1))
    )
    assert small == pytest.approx(2 * large)


def test_a_guess_leaves_out_only_what_is_sure_to_fail():
    call = expected_s(run_of(1.0), problem(1 << 20))
    assert within_reach(run_of(1.01 * LOOK_CALLS * call), problem(1 << 20))
    assert not within_reach(run_of(0.99 * LOOK_CALLS * call), problem(1 << 20))
