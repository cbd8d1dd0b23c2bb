"""What a choice is best at."""

from __future__ import annotations

import pytest
from tabling import DEFAULT, FOUR, ONE, PASSIVE, TWO, choice, figures, look, problem, race

from advisor.records import Summary, pairs
from advisor.search.objective import Figures, best, contenders, joules_of, most_efficient, most_robust, picked

FOUR_PASSIVE = choice(threads=4, process=PASSIVE)


def beside(mean, p99):
    return Summary(mean / 2, mean / 2, mean, p99, (mean / 2, mean / 2), 50)


def test_robust_is_the_lowest_mean_beside_the_neighbour():
    known = [Figures(FOUR, figures(1.0), beside(900.0, 1000.0)), Figures(ONE, figures(5.0), beside(6.0, 9000.0))]
    assert most_robust([*known, Figures(TWO, figures(0.5))]) == ONE
    assert most_robust([Figures(TWO, figures(0.5))]) is None


def test_the_99th_percentile_decides_among_means_that_tie():
    known = [Figures(FOUR, figures(1.0), beside(100.0, 900.0)), Figures(ONE, figures(5.0), beside(104.0, 110.0))]
    assert most_robust(known) == ONE
    assert most_robust([known[0], known[1]._replace(stolen=beside(106.0, 110.0))]) == FOUR


def test_efficient_is_the_fewest_core_seconds_within_five_percent_of_the_best_time():
    known = [Figures(FOUR, figures(100.0)), Figures(TWO, figures(104.0)), Figures(ONE, figures(106.0))]
    assert most_efficient(known) == TWO
    assert most_efficient([]) is None


def test_joules_decide_where_all_that_are_near_were_metered():
    four, two = Figures(FOUR, figures(100.0), joules=1e-6), Figures(TWO, figures(104.0), joules=2e-6)
    assert most_efficient([four, two]) == FOUR
    assert most_efficient([four._replace(joules=None), two]) == TWO
    assert most_efficient([four, two, Figures(ONE, figures(900.0))]) == FOUR  # far off and not metered: no matter


@pytest.mark.parametrize("objective", ["robust", "efficiency"])
def test_the_fastest_stands_where_no_figure_says_otherwise(objective):
    assert best([], objective, FOUR) == FOUR


def test_a_race_is_decided_over_all_process_parts_and_without_those_that_failed():
    verdict = race(64, {FOUR: 100.0, FOUR_PASSIVE: 103.0, ONE: 400.0, TWO: float("inf")})
    stolen = [
        look(64, FOUR, 9000.0),
        look(64, FOUR_PASSIVE, 200.0),
        look(64, ONE, 450.0),
        look(64, TWO, 1.0),
        look(128, ONE, 1.0),
    ]
    assert picked(verdict, "latency", stolen, []) == FOUR
    assert picked(verdict, "robust", stolen, []) == FOUR_PASSIVE
    assert picked(verdict, "efficiency", stolen, []) == FOUR
    assert picked(verdict, "robust", [], []) == FOUR


def test_energy_of_a_call_is_power_times_its_time():
    metered = look(64, ONE, 1e6)._replace(samples_ns=(1e6, 3e6), conditions=pairs({"joules": 20.0, "metered_s": 2.0}))
    assert joules_of(metered) == pytest.approx(10.0 * 2e-3)
    assert joules_of(metered._replace(conditions=pairs({"joules": None, "metered_s": 2.0}))) is None
    assert joules_of(metered._replace(status="timeout", samples_ns=())) is None


def test_the_best_of_each_team_size_races_where_the_objective_may_want_it():
    slow = choice("slow", threads=1, process=DEFAULT)
    looks = [look(64, FOUR, 100.0), look(64, TWO, 118.0), look(64, ONE, 300.0), look(64, slow, 310.0)]
    assert contenders(looks, "latency") == ()
    assert contenders(looks, "robust") == (FOUR, TWO, ONE)
    assert contenders(looks, "efficiency") == (FOUR, TWO)
    assert contenders([look(64, ONE, 1.0, "crashed")], "robust") == ()
    assert contenders([*looks, look(64, ONE, 500.0)], "robust")[-1] == ONE
    assert all(problem(64) == one.problem for one in looks)
