from collections import Counter

import pytest
from fake import FakeClock, FakeExecutor, quiet, synthetic_noise
from judging import PROBLEM, contender, judge_fake, noises, wilson

from advisor.records import pairs
from advisor.search.race import LEAST_ROUNDS, LOOKS, Heat, RaceOptions, race

RACES = 200
A, B, C = (contender(k) for k in range(3))


def times(**ns):
    table = dict(zip((A, B, C), ns.values(), strict=False))
    return lambda _, choice: table[choice]


def run(executor, *choices, default=A, listen=lambda _: None, **options):
    return race(executor, Heat(PROBLEM, choices, default), RaceOptions(**options), listen)


def outcome(verdict):
    return {standing.choice: standing.outcome for standing in verdict.standings}


def test_a_clear_order_is_found_and_the_hopeless_dropped_after_three_rounds():
    executor = FakeExecutor(times(a=100.0, b=110.0, c=200.0))
    verdict = run(executor, A, B, C)
    assert verdict.winner == A
    assert outcome(verdict) == {A: "winner", B: "slower", C: "slower"}
    assert Counter(choice for _, choice, _ in executor.asked) == {A: 9, B: 9, C: 3}
    ratios = {s.choice: s.ratio for s in verdict.standings}
    assert ratios == pytest.approx({A: 1.0, B: 1.1, C: 2.0})
    assert [s.choice for s in verdict.standings] == [A, B, C]


def test_every_round_is_shuffled_and_one_sample_a_choice():
    seen = []
    executor = FakeExecutor(times(a=100.0, b=100.0, c=100.0), synthetic_noise(1))
    verdict = run(executor, A, B, C, listen=seen.append)
    rounds = [[s.choice for s in seen if s.round == r + 1] for r in range(verdict.rounds)]
    assert all(sorted(map(repr, order)) == sorted(map(repr, (A, B, C))) for order in rounds if len(order) == 3)
    assert len({tuple(order) for order in rounds}) > 3
    assert all(ask.samples == 1 for _, _, ask in executor.asked)
    assert [s.order for s in seen[:3]] == [0, 1, 2]


def test_the_same_seed_gives_the_same_race():
    one = run(FakeExecutor(times(a=100.0, b=101.0), synthetic_noise(3)), A, B, seed=5)
    two = run(FakeExecutor(times(a=100.0, b=101.0), synthetic_noise(3)), A, B, seed=5)
    assert one == two


def test_equals_tie_and_the_fewest_threads_win():
    few, many = contender(1, threads=1), contender(2, threads=16)
    verdict = race(FakeExecutor(lambda *_: 100.0), Heat(PROBLEM, (many, few), many), RaceOptions())
    assert verdict.winner == few
    assert outcome(verdict) == {few: "winner", many: "tie"}
    assert verdict.rounds == LEAST_ROUNDS  # a quiet machine proves the tie at the first look


def test_among_equals_with_as_many_threads_the_default_wins():
    for default in (A, B, C):
        assert run(FakeExecutor(lambda *_: 100.0), A, B, C, default=default).winner == default


def test_fewer_threads_do_not_win_a_tie_that_costs_much():
    few = contender(9, threads=1)
    slow = {few: 106.0, A: 100.0}
    noise = synthetic_noise(0, spread=0.15, lucky=0.0)  # too noisy to tell 6 % apart
    verdict = race(FakeExecutor(lambda _, c: slow[c], noise), Heat(PROBLEM, (A, few), A), RaceOptions(seed=1))
    assert outcome(verdict)[few] == "tie"
    assert verdict.winner == A


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "skipped"])
def test_a_failure_removes_the_choice_and_the_race_goes_on(status):
    executor = FakeExecutor(times(a=100.0, b=50.0), statuses=lambda _, c: status if c == B else "ok")
    verdict = run(executor, A, B)
    assert verdict.winner == A
    assert outcome(verdict) == {A: "winner", B: "failed"}
    assert sum(choice == B for _, choice, _ in executor.asked) == 1


def test_a_choice_that_fails_late_is_failed_and_keeps_its_summary():
    calls = Counter()

    def status(_, choice):
        calls[choice] += 1
        return "crashed" if choice == B and calls[B] > 5 else "ok"

    verdict = run(FakeExecutor(times(a=100.0, b=90.0), statuses=status), A, B)
    failed = next(s for s in verdict.standings if s.choice == B)
    assert verdict.winner == A
    assert failed.outcome == "failed"
    assert failed.summary.samples == 5
    assert failed.ratio is None


def test_no_verdict_when_all_fail():
    assert run(FakeExecutor(times(a=1.0, b=1.0), statuses=lambda *_: "wrong"), A, B) is None


def test_choices_that_failed_before_have_a_standing_and_are_not_measured():
    executor = FakeExecutor(times(a=100.0, b=50.0))
    verdict = race(executor, Heat(PROBLEM, (A,), B, failed=(B,)), RaceOptions())
    assert outcome(verdict) == {A: "winner", B: "failed"}
    assert {choice for _, choice, _ in executor.asked} == {A}


def test_the_deadline_ends_the_race_within_one_sample():
    clock = FakeClock()
    executor = FakeExecutor(times(a=1e9, b=1e9), synthetic_noise(2), clock=clock)
    verdict = run(executor, A, B, deadline=clock.now + 20.0, clock=clock)
    assert clock.now - 1000.0 < 22.0
    assert verdict.rounds < LEAST_ROUNDS or verdict.rounds < LOOKS[-1][0]
    assert run(executor, A, B, deadline=clock.now, clock=clock) is None


def test_under_nine_rounds_nothing_is_called_and_the_leader_wins():
    few = contender(9, threads=1)
    speed = {few: 110.0, A: 100.0}
    heat = Heat(PROBLEM, (few, A), A)
    verdict = race(FakeExecutor(lambda _, c: speed[c]), heat, RaceOptions(rounds=5))
    assert verdict.winner == A
    assert outcome(verdict) == {A: "winner", few: "tie"}


def test_the_samples_allowed_bound_the_race():
    executor = FakeExecutor(lambda *_: 100.0, synthetic_noise(4))
    verdict = run(executor, A, B, C, samples=60)
    assert 60 <= len(executor.asked) <= 62
    assert verdict.rounds == 20


def test_precise_samples_drop_what_is_five_percent_behind_after_three_rounds_but_never_the_default():
    executor = FakeExecutor(times(a=108.0, b=100.0, c=107.0), synthetic_noise(4, 0.003, lucky=0.0))
    verdict = run(executor, A, B, C, precise=True)
    samples = {standing.choice: standing.summary.samples for standing in verdict.standings}
    assert (verdict.winner, verdict.default) == (B, A)
    assert samples == {A: 9, B: 9, C: 3}
    usual = run(FakeExecutor(times(a=108.0, b=100.0, c=107.0), synthetic_noise(4, 0.003, lucky=0.0)), A, B, C)
    assert {standing.summary.samples for standing in usual.standings} == {9}


# --- the judge judged ---


@pytest.mark.slow
@pytest.mark.parametrize("name", list(noises(1)))
def test_equals_are_called_different_in_one_race_of_ten_at_most(name):
    tally = judge_fake(noises(RACES)[name], 0.0)
    assert tally.called <= RACES // 10, f"{tally.called} of {RACES}, Wilson 95 % {wilson(tally.called, RACES)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in noises(1) if name.startswith("recorded")])
def test_five_percent_is_found_in_nine_of_ten_races_and_hardly_ever_the_wrong_way(name):
    tally = judge_fake(noises(RACES)[name], 0.05)
    assert tally.right >= 0.9 * RACES, f"{tally.right} of {RACES}, Wilson 95 % {wilson(tally.right, RACES)}"
    assert tally.wrong <= RACES // 100


def test_a_clearly_slower_choice_never_wins_in_noise_and_reruns_agree():
    # true times 1.00, 1.01, 1.30 with 5 % noise and lucky outliers at half the time
    true_ns = {A: 1.00e6, B: 1.01e6, C: 1.30e6}
    winners = Counter()
    for seed in range(40):
        executor = FakeExecutor(lambda _, c: true_ns[c], synthetic_noise(seed, 0.05, 0.02))
        winners[run(executor, A, B, C, default=C, seed=seed).winner] += 1
    assert winners[C] == 0
    assert winners.most_common(1)[0][1] >= 36


def test_noise_of_tests_is_what_it_says():
    assert quiet(7) == 1.0
    noise = synthetic_noise(1)
    values = [noise(k) for k in range(4000)]
    assert 0.002 < sum(value < 0.75 for value in values) / 4000 < 0.03
    assert all(series(k) > 0 for (series,) in noises(1).values() for k in range(2000))


class Crowded(FakeExecutor):
    """From a sample on, everything is kept although it is noisy, as beside a loop that was started half-way."""

    noisy_from = 0

    def measure(self, problem, choice, ask):
        found = super().measure(problem, choice, ask)
        noisy = len(self.asked) > self.noisy_from
        return found._replace(conditions=pairs({"rejected": 4 * noisy, "kept_noisy": int(noisy)}))


@pytest.mark.parametrize(("noisy_from", "contended"), [(0, True), (8, True), (10**6, False)])
def test_a05_a_figure_is_contended_when_half_of_its_samples_were_noisy(noisy_from, contended):
    executor = Crowded(times(a=100.0, b=110.0))
    executor.noisy_from = noisy_from
    verdict = run(executor, A, B)
    assert [standing.contended for standing in verdict.standings] == [contended] * 2


# --- what an earlier run picked ---


def kept(few_ns, keep, noise=quiet):
    few, many = contender(1, threads=1), contender(2, threads=16)
    speed = {few: few_ns, many: 100.0}
    heat = Heat(PROBLEM, (few, many), few, keep=(many,) if keep else ())
    return few, many, race(FakeExecutor(lambda _, c: speed[c], noise), heat, RaceOptions(seed=1))


def test_of_equals_stays_what_an_earlier_run_picked():
    few, many, verdict = kept(100.0, keep=False)
    assert verdict.winner == few
    assert kept(100.0, keep=True)[2].winner == many
    assert outcome(kept(100.0, keep=True)[2])[few] == "tie"


def test_what_an_earlier_run_picked_goes_when_the_race_tells_it_apart():
    few, _, verdict = kept(90.0, keep=True)
    assert verdict.winner == few


@pytest.mark.parametrize(("few_ns", "stays"), [(98.0, True), (80.0, False)])
def test_in_great_noise_it_stays_within_five_percent_of_the_leader(few_ns, stays):
    noise = synthetic_noise(0, spread=0.3, lucky=0.0)  # so great that no interval tells
    few, many, verdict = kept(few_ns, True, noise)
    assert verdict.winner == (many if stays else few)
