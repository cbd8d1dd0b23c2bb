"""The duel: equals hold, a tenth slower is found, noise is no verdict, failures are told apart."""

import math

import pytest
from fake import FakeClock, FakeExecutor, recorded_noise, synthetic_noise
from tabling import choice, problem

from advisor.records import Summary
from advisor.search.duel import FAILED, HOLDS, NO_TIME, SLOWER, UNKNOWN, WRONG, Duel, change, duel, verdict
from advisor.search.race import RaceOptions
from advisor.search.samples import Interval

OWN, DEFAULT = choice(threads=1), choice(threads=4)
P = problem(4096)


def figures(ns, half=0.01, samples=40):
    """Figures whose interval is so many parts to both sides."""
    return Summary(ns, ns * 1.02, ns * 1.03, ns * 1.1, (ns * (1 - half), ns * (1 + half)), samples)


RECORDED = figures(50_000.0), figures(100_000.0)


def fought(slower=0.0, noise=None, statuses=None, asked=None, **options):
    """A choice that a table calls twice as fast as the default, and is now slower than that by so many parts."""
    times = {OWN: 50_000.0 * (1 + slower), DEFAULT: 100_000.0}
    clock = FakeClock()
    extra = {} if statuses is None else {"statuses": statuses}
    executor = FakeExecutor(lambda _, c: times[c], noise or recorded_noise(0), clock=clock, build_s=0.0, **extra)
    what = asked or Duel(P, OWN, DEFAULT, RECORDED, 0.05)
    return duel(executor, what, RaceOptions(clock=clock, **options)), executor


# --- the verdict ---


def calls(slower, count=40):
    """The verdicts of so many duels in recorded noise."""
    return [fought(slower, recorded_noise(i % 4, 31 * i), seed=i)[0] for i in range(count)]


def test_a_ratio_that_is_as_it_was_holds():
    found = calls(0.0)
    assert [one.verdict for one in found].count(SLOWER) == 0
    assert [one.verdict for one in found].count(HOLDS) >= 38
    assert all(one.ratio == pytest.approx(0.5, rel=0.1) for one in found)
    assert all(one.change_ci95[0] < one.change < one.change_ci95[1] for one in found)


def test_a_tenth_slower_is_found_with_its_interval():
    found = calls(0.10)
    assert [one.verdict for one in found].count(SLOWER) >= 36
    assert [one.verdict for one in found].count(HOLDS) == 0
    assert all(one.change_ci95[0] > 1.0 for one in found if one.verdict == SLOWER)


def test_faster_than_recorded_holds():
    assert fought(-0.3)[0].verdict == HOLDS


def test_a_whole_machine_that_is_slower_holds_and_is_told():
    executor = FakeExecutor(lambda _, c: {OWN: 150_000.0, DEFAULT: 300_000.0}[c])
    found = duel(executor, Duel(P, OWN, DEFAULT, RECORDED, 0.05), RaceOptions(clock=executor.clock))
    assert found.verdict == HOLDS
    assert found.reference_change == pytest.approx(3.0)


def test_in_great_noise_nothing_can_be_told():
    found, executor = fought(0.03, synthetic_noise(1, spread=0.4))
    assert found.verdict == UNKNOWN
    assert "too noisy" in found.reason
    assert found.change_ci95[0] < 1.05 < found.change_ci95[1]
    assert len(executor.asked) == 2 * 40


def test_samples_that_were_disturbed_are_no_verdict(monkeypatch):
    monkeypatch.setattr("advisor.search.duel.noisy_samples", lambda measurement: 1)
    found, _ = fought()
    assert found.verdict == UNKNOWN
    assert "disturbed" in found.reason


def test_both_are_sampled_equally_often_though_one_is_hopeless():
    """A race would drop the slow one after three rounds, and then no ratio is known."""
    _, executor = fought()
    counts = [sum(asked[1] == one for asked in executor.asked) for one in (OWN, DEFAULT)]
    assert counts[0] == counts[1] >= 9


def test_the_order_within_a_round_is_shuffled():
    _, executor = fought(seed=3)
    first = [executor.asked[i][1] for i in range(0, len(executor.asked), 2)]
    assert len(set(first)) == 2


# --- what is recorded is not sure itself ---


def test_the_benefit_of_the_doubt_is_the_tables():
    then, bar = Interval(0.0, -0.08, 0.08), 0.05
    assert verdict(Interval(math.log(1.10), 0.085, 0.105), then, bar) == HOLDS
    assert verdict(Interval(math.log(1.10), 0.085, 0.105), Interval(0.0, -0.01, 0.01), bar) == SLOWER
    assert verdict(Interval(math.log(1.20), 0.17, 0.19), then, bar) == SLOWER


def test_figures_of_few_samples_are_less_sure():
    sure = fought()[0].change_ci95
    few = figures(50_000.0), figures(100_000.0, samples=3)
    less = fought(asked=Duel(P, OWN, DEFAULT, few, 0.05))[0].change_ci95
    assert less[0] < sure[0]
    assert less[1] > sure[1]


def twice(ns, samples):
    """Recorded of the choice: it takes so long; of the default: 100 us, by so many samples."""
    return Duel(P, OWN, DEFAULT, (figures(ns), figures(100_000.0, samples=samples)), 0.05)


@pytest.mark.parametrize(("samples", "verdict_then"), [(3, UNKNOWN), (5, UNKNOWN), (8, UNKNOWN), (9, SLOWER)])
def test_a_default_that_few_samples_flattered_is_no_alarm(samples, verdict_then):
    """Recorded 20 times as fast in a busy minute, now twice as fast: nothing tells which of both was wrong."""
    found = fought(asked=twice(5_000.0, samples))[0]
    assert found.verdict == verdict_then
    assert ("few samples" in found.reason) == (verdict_then == UNKNOWN)
    assert found.change > 9


@pytest.mark.parametrize(("lead", "expected"), [(1.3, UNKNOWN), (1.1, SLOWER), (0.5, SLOWER)])
def test_what_lost_the_lead_that_a_race_drops_at_is_slower_whatever_the_samples(lead, expected):
    found = fought(slower=2 / lead - 1, asked=twice(5_000.0, 3))[0]
    assert found.verdict == expected


def test_a_ratio_of_few_samples_that_is_as_it_was_holds():
    assert fought(asked=twice(50_000.0, 3))[0].verdict == HOLDS


def test_uncertainties_add_in_quadrature():
    found = change(Interval(0.5, 0.47, 0.53), Interval(0.4, 0.36, 0.44))
    assert found.centre == pytest.approx(0.1)
    assert (found.low, found.high) == (pytest.approx(0.05), pytest.approx(0.15))


# --- failures and time ---


@pytest.mark.parametrize(
    ("status", "expected"), [("wrong", WRONG), ("crashed", FAILED), ("timeout", FAILED), ("skipped", UNKNOWN)]
)
@pytest.mark.parametrize("whose", [OWN, DEFAULT])
def test_failures_are_told_apart(status, expected, whose):
    found, executor = fought(statuses=lambda _, c: status if c == whose else "ok")
    assert found.verdict == expected
    assert "as told" in found.reason
    assert ("the default choice" in found.reason) == (whose == DEFAULT)
    assert len(executor.asked) <= 2


def test_the_default_itself_is_only_checked():
    same = Duel(P, DEFAULT, DEFAULT, None, 0.05)
    found, executor = fought(asked=same)
    assert (found.verdict, found.ratio, len(executor.asked)) == (HOLDS, None, 1)
    assert fought(asked=same, statuses=lambda _, c: "wrong")[0].verdict == WRONG


def test_without_recorded_figures_a_time_says_nothing():
    found, _ = fought(asked=Duel(P, OWN, DEFAULT, None, 0.05))
    assert found.verdict == UNKNOWN
    assert "no undisturbed times" in found.reason


def test_without_time_there_is_no_verdict():
    found, executor = fought(deadline=1000.02)  # the clock begins at 1000
    assert (found.verdict, found.reason, found.ratio) == (UNKNOWN, NO_TIME, None)
    assert 0 < len(executor.asked) < 18
    assert fought(deadline=1000.0)[1].asked == []


def test_a_hang_that_the_end_of_the_time_cut_short_is_no_failure():
    found, _ = fought(statuses=lambda _, c: "timeout", deadline=1000.5)
    assert (found.verdict, found.reason) == (UNKNOWN, NO_TIME)


def test_time_that_ends_after_nine_rounds_still_gives_a_verdict():
    found, executor = fought(0.5, deadline=1000.08)
    assert executor.clock.now < 1001
    assert found.verdict == SLOWER
