"""Ranges of n: as few as brute force finds, and borders that move to what was measured between two n."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabling import FOUR, ONE, TWO, choice, figures, race

from advisor.search.borders import BOUND, Cell, border, bracket, cell, crossing, fewest, log_ratio
from advisor.search.crossing import borders
from advisor.search.overturn import overturned

NAMES = (ONE, TWO, FOUR)
LOSSES = st.one_of(st.none(), st.sampled_from([0.0, 0.004, 0.01, 0.0148, 0.02, 0.3]))


def same(what):
    return what


@st.composite
def cells(draw):
    found = []
    for i in range(draw(st.integers(1, 6))):
        best = draw(st.sampled_from(NAMES))
        losses = {other: draw(LOSSES) for other in NAMES}
        found.append(Cell(2**i, best, {c: x for c, x in losses.items() if x is not None} | {best: 0.0}))
    return found


def ranges(path):
    return 1 + sum(a != b for a, b in itertools.pairwise(path))


@given(cells())
def test_ranges_are_as_few_and_cost_as_little_as_brute_force_finds(given_cells):
    candidates = {one.best for one in given_cells}
    able = [[c for c in candidates if one.losses.get(c, 1.0) <= math.log1p(BOUND)] for one in given_cells]

    def cost(path):
        return ranges(path), sum(one.losses[c] for one, c in zip(given_cells, path, strict=True))

    best = min(cost(path) for path in itertools.product(*able))
    found = fewest(given_cells)
    assert all(c in options for c, options in zip(found, able, strict=True))
    assert cost(found) == pytest.approx(best)


def test_no_n_is_no_range():
    assert fewest([]) == []


def test_a_choice_that_did_not_race_there_never_takes_an_n():
    assert fewest([Cell(1, ONE, {ONE: 0.0}), Cell(2, TWO, {TWO: 0.0}), Cell(3, ONE, {ONE: 0.0})]) == [ONE, TWO, ONE]


def test_losses_come_from_the_latest_race_of_enough_rounds():
    early = race(64, {ONE: 100.0, TWO: 130.0, FOUR: 101.0})
    late = race(64, {ONE: 100.0, TWO: 101.0}, "crossing")
    few = tuple(s._replace(summary=figures(500.0)._replace(samples=3)) for s in late.standings)
    found = cell([early, late, late._replace(standings=few)], 64, ONE, [TWO, FOUR, choice(threads=3)], same)
    assert found.losses == pytest.approx({ONE: 0.0, TWO: math.log(1.01), FOUR: math.log(1.01)})


def test_one_that_failed_in_its_last_race_takes_no_n_whatever_an_older_one_says():
    """The table went on with a wrong choice, since an older race had it within the bound."""
    older, latest = race(64, {ONE: 1.0, TWO: 1.01}), race(64, {ONE: 1.0, TWO: math.inf})
    assert cell((older, latest), 64, ONE, (TWO,), same).losses == {ONE: 0.0}


def test_a_choice_that_was_faster_than_the_winner_loses_nothing():
    kept = race(64, {ONE: 100.0, TWO: 99.0})._replace(winner=ONE)
    assert cell([kept], 64, ONE, [TWO], same).losses[TWO] == 0.0


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(-2, 2)), min_size=2, max_size=6, unique_by=lambda one: one[0])
)
def test_a_border_lies_in_its_bracket_and_loses_least_of_all_splits(points):
    points = sorted(points)
    (a, _), (b, _) = bracket(points)
    assert a < border(points) <= b

    def lost(first):
        inner = points[1:-1]
        return sum(max(0.0, r) for n, r in inner if n < first) + sum(max(0.0, -r) for n, r in inner if n >= first)

    splits = [n for n, _ in points[1:]]
    assert lost(b) == pytest.approx(min(map(lost, splits)))


# --- which borders are measured ---


def pair(times):
    return [race(n, {ONE: one, FOUR: four}, default=TWO) for n, (one, four) in times.items()]


def test_both_choices_and_the_default_run_where_times_are_expected_to_cross():
    verdicts = pair({100: (10.0, 100.0), 10000: (100.0, 10.0)})
    (heat,) = borders(verdicts)
    assert (heat.purpose, heat.problem.n, heat.choices, heat.default) == ("border", 1000, (ONE, FOUR, TWO), TWO)
    measured = race(1000, {ONE: 90.0, FOUR: 100.0, TWO: 500.0}, "border")
    (again,) = borders([*verdicts, measured])
    assert again.problem.n == math.isqrt(1000 * 10000)
    assert log_ratio([*verdicts, measured], 1000, ONE, FOUR, same) == pytest.approx(math.log(0.9))


def test_measuring_at_the_border_moves_it_to_the_planted_one():
    # the log ratio is no line over log n: interpolation alone is off by a factor of two

    def ratio(n):
        return math.log(n / 5000) * (1.0 if n < 5000 else 0.2)

    def raced(n, purpose):
        return race(n, {FOUR: 1000.0, ONE: 1000.0 * math.exp(ratio(n))}, purpose, default=TWO)

    verdicts, lost = [raced(1024, "final"), raced(16384, "final")], []
    for _ in range(3):
        points = sorted((v.problem.n, ratio(v.problem.n)) for v in verdicts)
        lost.append(abs(ratio(border(points))))
        verdicts += [raced(heat.problem.n, "border") for heat in borders(verdicts)]
    assert lost[2] < lost[1] < lost[0]
    assert lost[2] < 0.6 * lost[0]


@pytest.mark.parametrize(
    "times",
    [
        {100: (10.0, 10.1), 10000: (10.1, 10.0)},  # a tie across the gap
        {100: (10.0, 100.0), 105: (100.0, 10.0)},  # nothing lies between that is worth a race
        {100: (10.0, 100.0), 10000: (10.0, 100.0)},  # one choice
    ],
)
def test_borders_that_do_not_matter_are_not_measured(times):
    assert borders(pair(times)) == ()


def test_a_border_that_races_cannot_place_is_not_measured():
    apart = [race(100, {ONE: 10.0, TWO: 11.0}), race(10000, {FOUR: 10.0, TWO: 11.0})]
    assert borders(apart) == ()


# --- winners that a crossing race beats ---


def crossed(times, rounds=14, outcome="slower"):
    found = race(64, times, "crossing")
    ranked = tuple(s._replace(outcome=outcome) if s.outcome == "slower" else s for s in found.standings)
    return found._replace(rounds=rounds, standings=ranked)


def test_a_winner_that_a_crossing_race_clearly_beats_is_replaced():
    final = race(64, {ONE: 110.0, TWO: 120.0})
    (left, crossing_race) = overturned([final, crossed({ONE: 110.0, FOUR: 99.0})])
    assert (left.winner, left.purpose, crossing_race.purpose) == (FOUR, "final", "crossing")
    ratios = {s.choice: s.ratio for s in left.standings}
    assert ratios[FOUR] == 1.0
    assert ratios[TWO] == pytest.approx(120.0 / 110.0 * 110.0 / 99.0)


@pytest.mark.parametrize(
    "later",
    [
        crossed({ONE: 110.0, FOUR: 99.0}, rounds=8),
        crossed({ONE: 110.0, FOUR: 99.0}, outcome="tie"),
        crossed({ONE: 100.0, FOUR: 99.0}),
        crossed({ONE: 99.0, FOUR: 110.0}),
    ],
)
def test_a_winner_stays_where_a_crossing_race_does_not_clearly_beat_it(later):
    final = race(64, {ONE: 110.0, TWO: 120.0})
    assert overturned([final, later])[0] == final


def test_a_final_after_the_crossing_race_stands():
    early, late = race(64, {ONE: 110.0, TWO: 120.0}), race(64, {ONE: 90.0, FOUR: 99.0})
    assert overturned([early, crossed({ONE: 110.0, FOUR: 99.0}), late])[2] == late


def test_the_border_of_steps_is_where_interpolation_puts_it():
    assert border([(100, -1.0), (10000, 1.0)]) == crossing(100, 10000, -1.0, 1.0) == 1000
