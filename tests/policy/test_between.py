"""A third choice between two tuned n: taken where it is near the best at both, and only where that is worth a row."""

import pytest
from tabling import FOUR, MADE, ONE, TWO, look, machine, race

from advisor.policy.between import WORTH, third
from advisor.policy.learn import choose, learn

FAR = {ONE: 100.0, FOUR: 400.0}, {ONE: 6400.0, FOUR: 1600.0}
"""At 64 and 1024: each is four times as slow at the other's end, and twice at 256, where they cross."""


def between(two, raced=(ONE, TWO, FOUR), measured=None):
    low, high = ({**times, TWO: ns} for times, ns in zip(FAR, two, strict=True))
    return third((64, ONE, low), (1024, FOUR, high), raced, measured or {})


def test_what_is_near_the_best_at_both_ends_is_taken_where_both_are_slow():
    found = between((120.0, 1920.0))
    assert found.choice == TWO
    assert 64 < found.first < 256 < found.end <= 1024
    assert found.first * found.end == pytest.approx(256 * 256, rel=0.02)  # as far from either end


@pytest.mark.parametrize(("worth", "taken"), [(WORTH - 0.005, False), (WORTH + 0.005, True)])
def test_it_is_taken_only_where_it_is_worth_a_row_of_its_own(worth, taken):
    assert (between((200.0 / (1 + worth), 3200.0 / (1 + worth))) is not None) == taken


def test_nothing_is_taken_that_never_raced_or_is_not_known_at_both_ends():
    assert between((120.0, 1920.0), raced=(ONE, FOUR)) is None
    low, high = FAR
    assert third((64, ONE, {**low, TWO: 120.0}), (1024, FOUR, high), (ONE, TWO, FOUR), {}) is None
    assert third((64, ONE, {ONE: 100.0, TWO: 120.0}), (1024, FOUR, {**high, TWO: 1920.0}), (TWO,), {}) is None
    assert third((64, ONE, {**low, TWO: 120.0}), (65, FOUR, {**high, TWO: 1920.0}), (TWO,), {}) is None


def test_what_was_measured_between_them_counts_before_what_is_expected():
    """Expected at 256: 800 of both, 480 of the third."""
    assert between((120.0, 1920.0), measured={250: {ONE: 780.0, FOUR: 790.0}}) is not None
    assert between((120.0, 1920.0), measured={250: {ONE: 480.0, FOUR: 790.0}}) is None
    assert between((120.0, 1920.0), measured={250: {ONE: 780.0, FOUR: 790.0, TWO: 775.0}}) is None
    assert between((120.0, 1920.0), measured={70: {ONE: 100.0}}) is not None  # where the first choice stays


def test_a_border_that_was_raced_stays_where_the_third_gains_nothing_there():
    raced = [*races(), race(256, {ONE: 490.0, FOUR: 485.0}, "border")]
    (section,) = learn(machine(), raced, [], MADE).sections
    assert [row.choice for row in section.rows] == [ONE, FOUR]


def races():
    low, high = ({**times, TWO: ns} for times, ns in zip(FAR, (120.0, 1920.0), strict=True))
    return [race(64, low), race(1024, high)]


def test_a_table_has_a_row_for_it_between_those_of_the_tuned_n():
    (section,) = learn(machine(), races(), [], MADE).sections
    assert [row.choice for row in section.rows] == [ONE, TWO, FOUR]
    assert [choose(section, n) for n in (64, 256, 1024)] == [ONE, TWO, FOUR]
    assert [row.low for row in section.rows[1:]] == [row.high + 1 for row in section.rows[:-1]]
    assert [point.n for point in section.rows[1].points] == [64, 1024]
    assert section.tuned_n == (64, 1024)


def test_what_has_a_look_alone_at_one_end_counts_with_the_noise_of_a_look():
    def rows(ns):
        looked = [race(64, {ONE: 100.0, FOUR: 400.0, TWO: 120.0}), race(1024, FAR[1])]
        (section,) = learn(machine(), looked, [look(1024, TWO, ns)], MADE).sections
        return [row.choice for row in section.rows]

    assert rows(1920.0) == [ONE, TWO, FOUR]
    assert rows(5000.0) == [ONE, FOUR]  # 15 % more than that is no gain at the border


def test_no_row_is_made_for_a_choice_where_it_is_not_made():
    made = MADE._replace(exists=lambda choice, n: choice != TWO or n < 300)
    (section,) = learn(machine(), races(), [], made).sections
    assert [row.choice for row in section.rows] == [ONE, FOUR]
