from __future__ import annotations

import pytest
from bench_fixtures import choice
from fake import FakeClock, FakeExecutor
from kernel_race import LOOKS, Deadline, Refused, first_sample, look, sampler, take_turns

from advisor.kernels.registry import spec

PROBLEM = spec("forward").problem(64)


class Counted:
    """Samplers with fixed times that remember the order of their calls; a time of None fails."""

    def __init__(self, **times_ns: float | None) -> None:
        self.calls: list[str] = []
        self.samplers = {name: self._one(name, time_ns) for name, time_ns in times_ns.items()}

    def _one(self, name, time_ns):
        def sample() -> float:
            self.calls.append(name)
            if time_ns is None:
                raise Refused(f"{name}: crashed")
            return time_ns

        return sample


def test_a_look_samples_what_is_near_the_best_of_its_group_more_often():
    made = Counted(a=1e8, b=1.2e8, c=1e9, d=1.1e9, e=9e9)
    found = look(made.samplers, {"fast": ["a", "b", "c"], "slow": ["c", "d", "e"]})
    counts = {name: made.calls.count(name) for name in made.samplers}
    assert counts == {**dict.fromkeys("abcd", 1 + LOOKS), "e": 1}
    assert found.best(["c", "d", "e"], 2) == ["c", "d"]


def test_short_calls_are_sampled_twice_at_first():
    times = iter([5e6, 1e6, 3e6])
    assert first_sample(lambda: next(times)) == 1e6
    times = iter([5e9, 1e9])
    assert first_sample(lambda: next(times)) == 5e9


def test_what_fails_in_a_look_is_named_and_the_rest_goes_on():
    made = Counted(a=None, b=12.0)
    found = look(made.samplers, {"all": ["a", "b"]})
    assert found.failed == {"a": "a: crashed"}
    assert found.best(["a", "b"]) == ["b"]
    assert found.best(["a"]) == []


def test_all_take_one_turn_a_round_in_changing_order():
    made = Counted(a=1.0, b=2.0, c=3.0)
    found = take_turns(made.samplers, 20, seed=1)
    assert found == {"a": [1.0] * 20, "b": [2.0] * 20, "c": [3.0] * 20}
    rounds = [tuple(made.calls[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 3


def test_a_sampler_gives_one_sample_or_refuses():
    deadline = Deadline(60.0, FakeClock())
    pool = FakeExecutor(lambda problem, choice: 123.0)
    assert sampler(pool, PROBLEM, choice("tiled"), deadline)() == 123.0
    assert pool.asked[0][2].samples == 1
    broken = FakeExecutor(lambda problem, choice: 1.0, statuses=lambda problem, choice: "wrong")
    with pytest.raises(Refused, match="tiled: wrong: as told"):
        sampler(broken, PROBLEM, choice("tiled"), deadline)()


def test_a_deadline_counts_down_and_limits_answers():
    clock = FakeClock()
    deadline = Deadline(100.0, clock)
    assert deadline.limit_s() == 100.0
    clock.now += 99.0
    assert deadline.left_s() == pytest.approx(1.0)
    assert deadline.limit_s() == 30.0
    clock.now += 99.0
    assert deadline.left_s() == 0.0
