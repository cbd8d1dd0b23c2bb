"""Which cells a check measures: the best process part's choice, those first whose loss would cost most."""

import pytest
from tabling import DEFAULT, MADE, PASSIVE, SHAPE, choice, figures, look, machine, race

from advisor.policy.cells import cells, ranked
from advisor.policy.learn import Beside, learn
from advisor.records import Problem, Standing, Team, pairs

ONE, TWO, FOUR = choice(threads=1), choice(threads=2), choice(threads=4)
QUIET = choice(threads=4, process=PASSIVE)


def of(verdicts, beside=None):
    made = learn(machine(), verdicts, [], MADE, beside)
    return cells("decode", made.sections)


def contended(verdict, whose):
    standings = tuple(s._replace(contended=True) if s.choice == whose else s for s in verdict.standings)
    return verdict._replace(standings=standings)


def test_each_tuned_n_is_a_cell_beside_the_default():
    found = of([race(64, {FOUR: 4000.0, ONE: 1000.0}), race(1024, {FOUR: 12000.0, TWO: 9000.0})])
    assert [(one.problem.n, one.choice, one.reference) for one in found] == [(64, ONE, FOUR), (1024, TWO, FOUR)]
    assert [one.gain for one in found] == [pytest.approx(4.0), pytest.approx(12 / 9)]
    assert found[0].recorded == (figures(1000.0), figures(4000.0))
    assert found[0].problem == Problem("decode", "float32", pairs(SHAPE), 64)


def test_the_process_part_that_won_is_measured():
    found = of([race(64, {FOUR: 4000.0, TWO: 3000.0, QUIET: 1000.0})])
    assert [one.choice for one in found] == [QUIET]


def test_one_thread_is_measured_under_the_default_process_part():
    found = of([race(64, {FOUR: 4000.0, QUIET: 3000.0, ONE: 1000.0})])
    assert [one.choice.process for one in found] == [DEFAULT]


def test_a_row_that_was_taken_away_has_no_cell():
    made = learn(machine(), [race(64, {FOUR: 4000.0, ONE: 1000.0}), race(1024, {FOUR: 9000.0, TWO: 8000.0})], [], MADE)
    (section,) = made.sections
    found = cells("decode", [section._replace(rows=section.rows[1:])])
    assert [one.problem.n for one in found] == [1024]


@pytest.mark.parametrize("whose", [ONE, FOUR])
def test_disturbed_figures_are_nothing_to_compare_with(whose):
    (found,) = of([contended(race(64, {FOUR: 4000.0, ONE: 1000.0}), whose)])
    assert (found.recorded, found.gain) == (None, None)


def test_the_default_itself_has_nothing_to_compare_with():
    (found,) = of([race(64, {FOUR: 1000.0, ONE: 4000.0})])
    assert (found.choice, found.reference, found.recorded) == (FOUR, FOUR, None)


def dropped(samples):
    """A race whose default was dropped after so many rounds."""
    verdict = race(64, {FOUR: 9000.0, ONE: 1000.0})
    own, default = verdict.standings[1], verdict.standings[0]
    few = Standing(FOUR, "slower", figures(9000.0)._replace(samples=samples), 9.0, None)
    assert default.choice == FOUR
    return verdict._replace(standings=(few, own))


def test_a_default_that_was_dropped_from_its_race_still_counts():
    (found,) = of([dropped(3)])
    assert found.gain == pytest.approx(9.0)
    (found,) = of([dropped(2)])
    assert found.gain is None


def test_the_largest_gain_and_the_most_fragile_come_first_and_other_choices_before_the_same_again():
    eight = ONE._replace(team=Team(3, ""))
    verdicts = [
        race(64, {FOUR: 9000.0, ONE: 1000.0}),
        race(128, {FOUR: 8000.0, ONE: 1000.0}),
        race(256, {FOUR: 3000.0, TWO: 2000.0}),
        race(512, {FOUR: 1500.0, eight: 1000.0}),
        race(1024, {FOUR: 1000.0, ONE: 9000.0}),
    ]
    fragile = [look(512, eight, 90_000.0), look(64, ONE, 1500.0)]
    order = [one.problem.n for one in ranked(of(verdicts, Beside(fragile)))]
    assert order == [64, 512, 256, 128, 1024]
