import itertools

import numpy as np
import pytest

from advisor.search.portfolio import elsewhere_log, in_company, levels, portfolio, promising, unlike, weighed

SQUARE = [{"a": a, "b": b} for a, b in itertools.product(range(5), range(5))]


def at(**values):
    return SQUARE.index(values)


def machine(slow, **fast):
    """Log slowdowns on the square: `slow` but for what is named `aXbY`."""
    found = np.full(len(SQUARE), slow)
    for name, value in fast.items():
        found[at(a=int(name[1]), b=int(name[3]))] = value
    return found


def test_other_machines_are_matched_by_parameters_and_what_failed_there_is_the_worst():
    listed = [{"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 3, "b": 2}]
    known = [({"b": 2, "a": 3}, 4.0), ({"a": 1, "b": 2}, 1.0), ({"a": 2, "b": 2}, None)]
    found = elsewhere_log(listed, [known, [({"a": 1, "b": 2}, None)]])
    assert found == pytest.approx(np.log([[1.0, 4.0, 4.0]]))


def test_levels_number_the_values_of_each_parameter_whatever_they_are():
    found = levels([{"a": 4, "b": "x"}, {"a": 4, "b": "y"}, {"a": True, "b": "x"}, {"b": "x"}])
    assert found.tolist() == [[0, 0], [0, 1], [1, 0], [2, 0]]


def test_a_lone_optimum_is_not_the_first_choice_where_one_in_good_company_is_nearly_as_good():
    lone = machine(2.0, a0b0=0.0, a4b4=0.1, a4b3=0.15, a4b2=0.15, a3b4=0.15, a2b4=0.15, a1b4=0.15)
    places, free = levels(SQUARE), np.ones(len(SQUARE), bool)
    assert in_company(lone[None], places, free) == at(a=4, b=4)
    assert in_company(machine(2.0, a0b0=0.0)[None], places, free) == at(a=0, b=0)


def test_after_the_first_comes_what_is_best_on_the_machine_it_does_not_suit():
    one, other = machine(1.0, a0b0=0.2, a1b1=0.0), machine(1.0, a0b0=0.2, a3b3=0.0)
    both = np.array([one, other])
    places = levels(SQUARE)
    assert portfolio(both, places, np.ones(len(SQUARE), bool), 3) == [at(a=0, b=0), at(a=1, b=1), at(a=3, b=3)]


def test_only_what_is_free_is_picked_and_no_more_than_there_is():
    both = np.array([machine(1.0, a0b0=0.0)])
    free = np.zeros(len(SQUARE), bool)
    assert portfolio(both, levels(SQUARE), free, 3) == []
    free[[3, 7]] = True
    assert set(portfolio(both, levels(SQUARE), free, 3)) == {3, 7}
    assert set(promising(both, free)) == {3, 7}
    assert set(unlike(both, levels(SQUARE), free, [0], 3)) == {3, 7}


def test_after_failures_the_most_unlike_of_the_promising_comes_first():
    rng = np.random.default_rng(0)
    listed = np.linspace(0, 1, 1000)[:, None]
    slowdown = np.abs(listed[:, 0] - 0.5)[None] + 0.001 * rng.random(1000)
    free = np.ones(1000, bool)
    free[500] = False
    picked = unlike(slowdown, listed, free, [500], 2)
    rows = promising(slowdown, free)
    away = np.abs(listed[rows, 0] - listed[500, 0])
    assert abs(listed[picked[0], 0] - listed[500, 0]) == pytest.approx(away.max())
    assert np.sign(listed[picked[0], 0] - 0.5) != np.sign(listed[picked[1], 0] - 0.5)


def test_the_first_pick_follows_the_nearer_machine_and_the_next_hedge():
    one, other = machine(2.0, a0b0=0.0), machine(2.0, a3b3=0.0)
    both, places, free = np.array([one, other]), levels(SQUARE), np.ones(len(SQUARE), bool)
    near, far = (portfolio(weighed(both, distances), places, free, 2) for distances in ((0.0, 9.0), (9.0, 0.0)))
    assert (near[0], far[0]) == (at(a=0, b=0), at(a=3, b=3))
    assert set(near) == set(far)


def test_equal_distances_weigh_as_none():
    both = np.array([machine(2.0, a0b0=0.0), machine(2.0, a3b3=0.0, a0b0=1.0)])
    free = np.ones(len(SQUARE), bool)
    assert in_company(weighed(both, [3.0, 3.0]), levels(SQUARE), free) == in_company(both, levels(SQUARE), free)
