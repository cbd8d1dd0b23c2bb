"""Where the time of a tune went: each call to the executor belongs to one phase, and all phases are the whole."""

from __future__ import annotations

import time

import pytest
from fake import FakeExecutor, FakeSpec
from judging import contender

from advisor.kernels.executor import Ask

PROBLEM = FakeSpec().problem(64)
LOOK, SAMPLE, WINDOW = Ask(5, 1.0), Ask(1, 1.0, 0.002), Ask(50, 1.0, 0.02, quiet=False)


class Pool(FakeExecutor):
    """A fake that can be entered, compiles nothing, and knows a word that only it can answer."""

    word = "mine"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def prepare(self, problem, choices):
        return len(choices)

    def check(self, problem, choice, limit_s):
        return self.measure(problem, choice, Ask(1, limit_s))


@pytest.fixture
def timed():
    import phases

    stages, spent = phases.Stages(), []
    pool = Pool(lambda *_: 100.0)
    with phases.Timed(pool, stages, spent, time.monotonic()) as executor:
        yield executor, stages, spent
    assert pool.closed


def test_every_call_is_passed_on_and_belongs_to_a_phase(timed):
    executor, stages, spent = timed
    one, two = contender(1), contender(2)
    assert executor.prepare(PROBLEM, [one, two]) == 2
    for choice in (one, two):
        assert executor.measure(PROBLEM, choice, LOOK).status == "ok"
    executor.measure(PROBLEM, one, SAMPLE)
    executor.measure(PROBLEM, one, WINDOW)
    executor.check(PROBLEM, one, 1.0)
    stages.stage("held-out n", 1)
    executor.measure(PROBLEM, one, SAMPLE)
    assert [one.phase for one in spent] == [
        "builds, starting workers",
        "first look of a process part",
        "other first looks",
        "races",
        "beside a neighbour",
        "winners in a fresh process",
        "sizes held out",
    ]
    assert executor.word == "mine"


def test_the_phases_are_the_whole():
    import phases

    spent = [phases.Spent("races", 1.0, 2.0), phases.Spent("other first looks", 3.0, 0.5), phases.Spent("races", 4, 1)]
    found = phases.summary(spent, 10.0)
    assert found["races"] == {"calls": 2, "seconds": 3.0, "share": 0.3}
    assert found["probing, who else is here"]["seconds"] == 1.0
    assert found["deciding"]["seconds"] == pytest.approx(10.0 - 1.0 - 3.5)
    assert sum(phase["share"] for phase in found.values()) == pytest.approx(1.0)
    assert "whole tune" in phases.shown(found, 10.0)
    assert set(phases.summary([], 1.0)) == {"deciding"}
