"""Timings that cannot be: refused with the reason, and nothing real is."""

from __future__ import annotations

import math

import kernel_fixtures as fixtures
import pytest

from advisor.kernels.child import Answer
from advisor.kernels.executor import Ask
from advisor.kernels.messages import Reply
from advisor.kernels.plausible import checked, least_ns
from advisor.kernels.pool import WorkerPool
from advisor.kernels.registry import spec
from advisor.records import Measurement, Team

PLAIN = fixtures.good("plain")


def measured(*samples, threads=1, n=4096, kernel=None):
    problem = (kernel or spec("decode")).problem(n)
    choice = fixtures.choice(PLAIN)._replace(team=Team(threads, "none"))
    return Measurement(problem, choice, "ok", samples, error=0.0, tolerance=1e-6, threads_observed=threads)


@pytest.mark.parametrize("sample", [0.0, -3.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(sample):
    found = checked(spec("decode"), measured(9e6, sample, 9e6))
    assert (found.status, found.samples_ns) == ("wrong", ())
    assert f"impossible timing: a call took {sample:g} ns" in found.reason


def test_faster_than_any_core_can_read_is_refused_with_both_figures():
    decode = spec("decode")
    one = measured(1.0)
    moved_ns = _bytes(decode.shapes(one.problem)) / 1000
    assert least_ns(decode, one) >= moved_ns * 0.99  # a core moves less than 1000 bytes a ns
    found = checked(decode, measured(moved_ns / 2))
    assert found.status == "wrong"
    assert "the work is not done in every call" in found.reason
    assert f"{moved_ns / 2:.4g} ns" in found.reason
    assert checked(decode, measured(moved_ns * 2)).status == "ok"
    assert checked(decode, measured(moved_ns / 2, threads=8)).status == "ok"  # eight cores could


def _bytes(shapes):
    return sum(4 * math.prod(shape) for shape in shapes.values())


def test_faster_than_any_core_can_compute_is_refused():
    forward = spec("forward")
    one = measured(1.0, n=4096, kernel=forward)
    floor = forward.flops(one.problem) / 4 / 4000  # 4 Tflop/s, a quarter of the work
    assert least_ns(forward, one) == pytest.approx(floor)
    assert checked(forward, measured(floor / 2, n=4096, kernel=forward)).status == "wrong"


def test_what_failed_for_another_reason_keeps_it():
    failed = measured()._replace(status="crashed", reason="killed by SIGSEGV")
    assert checked(spec("decode"), failed) is failed


@pytest.mark.parametrize("samples", [(0.0,), (100.0, -1.0), (1e-3,)])
def test_the_pool_refuses_what_a_worker_says(monkeypatch, samples):
    with WorkerPool(fixtures.here(), fixtures.scale(), [PLAIN]) as pool:
        reply = Reply("ok", samples_ns=samples, error=0.0, tolerance=1e-6, threads_observed=1)
        monkeypatch.setattr(pool.crew, "ask", lambda *_: Answer("ok", "", reply))
        found = pool.measure(fixtures.problem(1000), fixtures.choice(PLAIN), Ask(len(samples), 60.0))
    assert (found.status, found.samples_ns) == ("wrong", ())
    assert "impossible timing" in found.reason
