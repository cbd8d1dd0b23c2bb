import math

import numpy as np
import pytest

from advisor.search.samples import excess, log_ratio, p25, point_excess, quantile_weights, smooth_p25, summary


@pytest.mark.parametrize("count", [1, 2, 9, 40, 200])
def test_weights_sum_to_one_and_lean_to_the_quarter(count):
    weights = quantile_weights(count)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()
    assert (weights * np.arange(count)).sum() == pytest.approx(count * 0.25 - 0.25, abs=0.3)


def test_weights_match_the_beta_distribution():
    # Beta(2.5, 7.5) below 1/9 and 2/9, from its series (also scipy.special.betainc)
    weights = np.cumsum(quantile_weights(9))
    betainc = pytest.importorskip("scipy.special").betainc
    assert weights == pytest.approx([betainc(2.5, 7.5, (k + 1) / 9) for k in range(9)], abs=1e-4)


def test_summary_of_known_samples():
    found = summary([float(x) for x in range(1, 101)])
    assert found.p25_ns == pytest.approx(25.75)
    assert found.median_ns == pytest.approx(50.5)
    assert found.mean_ns == pytest.approx(50.5)
    assert found.samples == 100
    low, high = found.ci95_ns
    assert low < found.p25_ns < high
    assert summary([7.0]) == (7.0, 7.0, 7.0, 7.0, (7.0, 7.0), 1)


def test_summary_is_repeatable_and_seeded():
    samples = list(np.random.default_rng(1).gamma(3.0, 1.0, 30))
    assert summary(samples, 3) == summary(samples, 3)
    assert summary(samples, 3).ci95_ns != summary(samples, 4).ci95_ns


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng, hits = np.random.default_rng(0), 0
    for seed in range(300):
        a, b = rng.normal(100, 5, 40), 1.02 * rng.normal(100, 5, 40)
        found = log_ratio(list(a), list(b), 0.05, seed)
        hits += found.low <= math.log(1.02) <= found.high
    assert 0.90 <= hits / 300 <= 0.99


def test_a_drift_that_both_share_cancels():
    drift = [100.0 * (1 + 0.02 * k) for k in range(20)]
    found = log_ratio(drift, [1.05 * x for x in drift], 0.05, 0)
    assert (found.low, found.centre, found.high) == pytest.approx((math.log(1.05),) * 3)


def test_one_lucky_sample_in_five_does_not_move_the_first_look():
    assert p25([100.0, 101.0, 102.0, 103.0, 50.0]) == 100.0
    assert smooth_p25([100.0]) == 100.0


def test_the_best_of_equals_is_not_ahead_of_the_others():
    rng = np.random.default_rng(5)
    plain, fitted = [], []
    for _ in range(200):
        rows = np.exp(rng.normal(0, 0.1, (6, 20)))
        plain.append(np.log(smooth_p25(rows[0]) / min(map(smooth_p25, rows))))
        fitted.append(point_excess(rows, 0))
    assert np.mean(plain) > 0.03  # the lowest of six is lucky
    assert abs(np.mean(fitted)) < 0.01


def test_a_slower_choice_is_as_much_slower_as_it_is():
    rows = np.exp(np.random.default_rng(6).normal(0, 0.03, (4, 80)))
    rows[2] *= 1.1
    found = excess(rows, 2, 0.05, seed=1)
    assert found.low < np.log(1.1) < found.high
    assert found.high - found.low < 0.06
    assert found.centre == pytest.approx(point_excess(rows, 2))
