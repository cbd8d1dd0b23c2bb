"""The protocol of one measurement, on a fake clock and a fake scheduler: exact and instant."""

from __future__ import annotations

import os

import pytest

from advisor.kernels.sampling import MOST_CALLS, RETRIES, WARM_NS, WARM_UPS, Meter, Plan, Reading, is_noisy, sample


class Fake:
    """A kernel of `call_ns` a call and a meter beside it; `waits` are the run delays of the samples to come."""

    def __init__(self, call_ns, waits=(), slow=()):
        self.call_ns, self.waits, self.slow = call_ns, list(waits), list(slow)
        self.calls, self.waited, self.pending = [], 0, False

    def run(self, calls):
        self.calls.append(calls)
        if len(self.calls) > 2:  # not in warm-ups
            self.waited += self.waits.pop(0) if self.waits else 0
        return int(calls * self.call_ns * (self.slow.pop(0) if self.slow else 1))

    def read(self):
        return Reading({1: 0}, {1: self.waited}, 0)


def take(fake, samples=3, sample_ns=1e6, give_up_ns=None, calls=0):
    return sample(fake.run, fake, Plan(samples, sample_ns, give_up_ns, calls))


def test_two_warm_ups_then_samples_that_are_long_enough():
    fake = Fake(1000)
    found = take(fake)
    assert fake.calls[:2] == [1, 1]
    assert found.samples_ns == (1000.0,) * 3
    assert all(calls * 1000 >= 1e6 for calls in fake.calls[2:])
    assert found.calls < 2000  # and not much longer
    assert found.kernel_ns == sum(fake.calls) * 1000


def test_a_long_call_is_one_sample():
    fake = Fake(5e6)
    assert take(fake).calls == 1
    assert fake.calls == [1] * 5


def test_known_calls_are_used_again():
    fake = Fake(1000)
    take(fake, calls=1250)
    assert fake.calls == [1, 1, 1250, 1250, 1250]


def test_a_slow_warm_up_does_not_make_short_samples():
    fake = Fake(1000, slow=[1, 900])
    found = take(fake)
    assert found.samples_ns == (1000.0,) * 3
    assert found.calls * 1000 >= 1e6


class Climbing(Fake):
    """Calls that get faster: each takes `share` less than the one before, until `steps` were made."""

    def __init__(self, call_ns, share, steps):
        super().__init__(call_ns)
        self.share, self.steps, self.made = share, steps, 0

    def run(self, calls):
        self.calls.append(calls)
        start = self.made
        self.made += calls
        return int(sum(self.call_ns * (1 - self.share) ** min(i, self.steps) for i in range(start, self.made)))


def test_t01_warm_up_goes_on_until_the_rate_is_stable():
    """A rate that climbs while it is measured: no sample is of the time before it has settled."""
    fake = Climbing(1_000_000, 0.2, 5)
    found = take(fake)
    assert found.samples_ns == pytest.approx((1_000_000 * 0.8**5,) * 3)
    assert found.kernel_ns > sum(found.samples_ns) * found.calls  # what warming up took counts as spent


def test_t01_a_steady_rate_and_one_known_already_cost_two_calls():
    assert warm_ups(Fake(1000)) == [1, 1]
    assert warm_ups(Fake(1000, slow=[1.09, 1])) == [1, 1]
    fake = Climbing(1_000_000, 0.5, 20)
    take(fake, calls=7)
    assert fake.calls[:3] == [1, 1, 7]


def test_t01_short_calls_are_warmed_up_by_more_of_them_and_never_for_long():
    assert warm_ups(Fake(1000, slow=[2, 1] * 4)) == [1, 1, 2, 4, 8, 16, 32, 64]
    long = warm_ups(Fake(3e6, slow=[2, 1] * 4))
    assert set(long) == {1}
    assert 2 < len(long) < WARM_UPS
    assert sum(3e6 * slow for slow, _ in zip([2, 1] * 4, long, strict=False)) <= WARM_NS
    assert warm_ups(Fake(9e6, slow=[2, 1])) == [1, 1]


def warm_ups(fake):
    """The calls before the first sample, which is the first of the calls that are all alike at the end."""
    take(fake)
    return fake.calls[:-3]


def test_a_noisy_sample_is_taken_again_and_its_time_kept_apart():
    fake = Fake(5e6, waits=[60_000, 0, 40_000, 0])
    found = take(fake, samples=3)
    assert len(found.samples_ns) == 3
    assert found.rejected_ns == (5e6,)
    assert found.kept_noisy == 0


def test_after_four_retries_the_last_is_kept_as_noisy():
    fake = Fake(5e6, waits=[60_000] * 100)
    found = take(fake, samples=2)
    assert len(found.samples_ns) == 2
    assert len(found.rejected_ns) == 2 * RETRIES
    assert found.kept_noisy == 2


@pytest.mark.parametrize(("give_up_ns", "samples"), [(900, 1), (1100, 3), (1700, 5), (None, 5)])
def test_five_samples_are_for_contenders(give_up_ns, samples):
    assert len(take(Fake(1000), samples=5, give_up_ns=give_up_ns).samples_ns) == samples


@pytest.mark.parametrize(("give_up_ns", "samples"), [(900, 1), (1100, 3), (None, 3)])
def test_giving_up_after_one_sample(give_up_ns, samples):
    assert len(take(Fake(1000), give_up_ns=give_up_ns).samples_ns) == samples


def test_a_hopeless_choice_costs_its_warm_ups_only():
    fake = Fake(5e9)
    found = take(fake, give_up_ns=1e6)
    assert fake.calls == [1, 1]
    assert found.samples_ns == (5e9,)


def test_a_call_that_takes_no_time_ends():
    assert take(Fake(0)).calls == MOST_CALLS


def test_noise_by_run_delay():
    before = Reading({1: 5}, {1: 100, 2: 50}, 0)
    assert not is_noisy(before, Reading({}, {1: 100, 2: 60}, 0), 1000)
    assert is_noisy(before, Reading({}, {1: 100, 2: 61}, 0), 1000)
    assert is_noisy(before, Reading({}, {1: 100, 2: 50, 3: 11}, 0), 1000)  # a thread that is new counts whole
    assert not is_noisy(before, Reading({}, {1: 100}, 0), 1000)


def test_noise_by_switches_where_delays_cannot_be_read():
    before = Reading({}, {}, 7)
    assert not is_noisy(before, Reading({}, {}, 7), 1e6)
    assert is_noisy(before, Reading({}, {}, 8), 1e6)
    assert not is_noisy(before, Reading({}, {}, 8), 250e6)


def test_the_meter_reads_this_process_and_leaks_nothing():
    before = len(os.listdir("/proc/self/fd"))
    meter = Meter()
    first = meter.read()
    sum(range(3_000_000))
    second = meter.read()
    if meter.kind == "schedstat":
        assert second.ran[os.getpid()] >= first.ran[os.getpid()] > 0
    else:
        assert second.switches >= first.switches
    meter.close()
    meter.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_schedstat_switches_serve(monkeypatch, tmp_path):
    monkeypatch.setattr("advisor.kernels.sampling._TASKS", str(tmp_path / "none"))
    meter = Meter()
    assert meter.kind == "switches"
    assert meter.read().waited == {}
    meter.close()


# --- where interference is wanted ---


class Stalling(Fake):
    """A kernel that waits `stall_ns` in every call whose number `stalls` says yes to."""

    def __init__(self, call_ns, stall_ns, stalls):
        super().__init__(call_ns)
        self.stall_ns, self.stalls, self.done = stall_ns, stalls, 0

    def run(self, calls):
        stalled = sum(self.stalls(number) for number in range(self.done, self.done + calls))
        self.done += calls
        self.calls.append(calls)
        self.waited += stalled * self.stall_ns
        return int(calls * self.call_ns + stalled * self.stall_ns)


def window(fake, samples=50, sample_ns=20e6):
    return sample(fake.run, fake, Plan(samples, sample_ns, None, 0, quiet=False))


def test_a_window_is_a_stretch_of_time_and_its_mean_that_of_all_calls():
    fake = Stalling(20_000, 8e6, lambda number: number % 1000 == 0)  # 28 us on average, not 20
    found = window(fake)
    assert found.rejected_ns == ()
    assert sum(found.samples_ns) * found.calls >= 1e9
    assert sum(found.samples_ns) / len(found.samples_ns) == pytest.approx(28_000, rel=0.05)
    assert 0 < found.kept_noisy <= len(found.samples_ns)


def test_stalls_in_every_call_make_no_window_of_minutes():
    """Fast in the first calls, four hundred times slower from then on: the sample is cut off and planned anew."""
    fake = Stalling(20_000, 8e6, lambda number: number >= 6000)
    found = window(fake)
    assert found.kernel_ns < 5e9
    assert found.calls < 100
    assert found.samples_ns[-1] == pytest.approx(8.02e6)


def test_a_slow_start_does_not_leave_samples_too_short_to_hold_a_stall():
    fake = Stalling(20_000, 200e6, lambda number: number in (0, 1))
    found = window(fake)
    assert found.calls * 20_000 == pytest.approx(20e6, rel=0.1)


def test_a_call_of_seconds_has_a_window_of_a_few():
    fake = Fake(1.5e9)
    assert window(fake).samples_ns == (1.5e9,) * 3
    assert fake.calls == [1] * 4


def test_a_single_sample_can_be_asked_for():
    assert len(window(Fake(20_000), samples=1).samples_ns) == 1
