import itertools
import math

import numpy as np
import pytest

from advisor.search.portfolio import PORTFOLIO, elsewhere_log
from advisor.search.sampler import Batches, ListSampler
from advisor.search.strategy import START_POINTS, Builds, Strategy


def grid(**parameters):
    return [dict(zip(parameters, row, strict=True)) for row in itertools.product(*parameters.values())]


def matrix_product():
    """A roofline of tiles: compute falls with work a thread, traffic with the tile, threads beyond 512 do not run."""
    listed = grid(m=[16, 32, 64, 128], n=[16, 32, 64, 128], tm=[8, 16, 32], tn=[8, 16, 32], vec=[1, 2, 4], local=[0, 1])
    listed = [p for p in listed if p["m"] % p["tm"] == 0 and p["n"] % p["tn"] == 0]
    times = []
    for p in listed:
        work = p["m"] // p["tm"] * (p["n"] // p["tn"])
        compute = 1.0 / min(1.0, work**0.5 / 4.5) * (1.3 if work > 64 else 1.0)
        load = (1 / p["m"] + 1 / p["n"]) * 40 * (1.0 if p["local"] else 1.6) / (0.5 + 0.2 * math.log2(2 * p["vec"]))
        times.append(None if p["tm"] * p["tn"] > 512 else (compute**4 + load**4) ** 0.25 + 0.04 * p["local"])
    return listed, times


def processor():
    """Threads, placement and knobs; some builds crash."""
    listed = grid(
        variant=["naive", "split", "simd"],
        block=[8, 16, 32, 64, 128],
        threads=[1, 2, 4, 7, 8, 16],
        placement=["close", "spread", "none"],
        wait=["default", "passive"],
    )
    times = []
    for p in listed:
        base = {"naive": 6.0, "split": 1.6, "simd": 1.0}[p["variant"]] * (1 + 0.08 * math.log2(p["block"] / 32) ** 2)
        threads = min(p["threads"], 8) + 0.25 * max(0, p["threads"] - 8)
        wait = 0.02 * math.log2(2 * p["threads"]) * (3 if p["wait"] == "passive" else 1)
        slow = 0.3 * (1.5 if p["placement"] == "close" else 1.0) / min(1.0, p["threads"] / 4)
        crash = p["variant"] == "simd" and p["block"] == 128
        times.append(None if crash else ((base / threads) ** 3 + slow**3) ** (1 / 3) + wait)
    return listed, times


SPACES = {"matrix product": matrix_product, "processor": processor}


def search(strategy, times, count):
    order = []
    for _ in range(count):
        index = strategy.ask()
        order.append(index)
        strategy.tell(index, times[index])
    return order


def best(times, order):
    return min((times[i] for i in order if times[i] is not None), default=math.inf)


@pytest.mark.parametrize("space", SPACES)
def test_it_is_nearer_to_the_optimum_than_random_in_kinds_of_spaces_it_was_not_made_for(space):
    listed, times = SPACES[space]()
    least = best(times, range(len(listed)))
    ours = [best(times, search(Strategy(listed, seed=seed), times, 40)) / least for seed in range(3)]
    chance = [np.random.default_rng(seed).permutation(len(listed))[:40] for seed in range(20)]
    assert np.mean(ours) <= 1.03
    assert np.mean(ours) - 1 < 0.5 * (np.mean([best(times, order) for order in chance]) / least - 1)


def test_each_configuration_is_proposed_once_and_then_nothing():
    listed = grid(a=[1, 2, 4], b=["x", "y"])
    strategy = Strategy(listed)
    assert sorted(search(strategy, [1.0 + i for i in range(6)], 6)) == list(range(6))
    assert strategy.ask() is None


def test_a_list_of_nothing_has_nothing_to_propose():
    assert Strategy([]).ask() is None


def test_equal_configurations_in_everything_but_order_are_searched_too():
    strategy = Strategy([{"a": 1}] * 12)
    assert sorted(search(strategy, [1.0] * 12, 12)) == list(range(12))


def test_failures_alone_end_in_proposals_still():
    listed, _ = matrix_product()
    strategy = Strategy(listed)
    order = search(strategy, [None] * len(listed), 30)
    assert len(set(order)) == 30
    assert strategy.current() is None


def test_it_learns_where_failures_lie():
    listed = grid(a=[1, 2, 4, 8, 16, 32, 64, 128], b=[1, 2, 4, 8, 16, 32, 64, 128], c=[0, 1])
    broken = [p["a"] * p["b"] > 512 for p in listed]
    times = [None if bad else 10.0 / (p["a"] * p["b"]) ** 0.1 for p, bad in zip(listed, broken, strict=True)]
    late = search(Strategy(listed), times, 50)[START_POINTS + 12 :]
    assert np.mean([broken[i] for i in late]) < 0.6 * np.mean(broken)


def test_the_same_seed_and_answers_lead_to_the_same_proposals():
    listed, times = processor()
    assert search(Strategy(listed, seed=3), times, 25) == search(Strategy(listed, seed=3), times, 25)
    assert search(Strategy(listed, seed=3), times, 8) != search(Strategy(listed, seed=4), times, 8)


def test_what_is_looked_at_beside_the_proposals_changes_none_of_them():
    listed, times = processor()
    one, other = Strategy(listed), Strategy(listed)
    search(one, times, 15)
    search(other, times, 15)
    other.belief_with({0: 1.0, 5: None})
    other.current()
    assert search(one, times, 15) == search(other, times, 15)


def test_what_runs_is_not_proposed_again():
    listed, times = processor()
    strategy = Strategy(listed)
    search(strategy, times, 12)
    first = strategy.propose(4)
    assert not set(first) & set(strategy.propose(4, running=first))


def test_a_batch_spreads_out_as_if_each_pick_had_been_measured():
    listed, times = processor()
    strategy = Strategy(listed)
    search(strategy, times, 12)
    batch = strategy.propose(8)
    assert len(set(batch)) == 8
    assert strategy.propose(8) == batch


def test_a_batch_adds_few_builds():
    listed, times = processor()
    builds = [(p["variant"], p["block"]) for p in listed]
    kinds = np.array([builds.index(build) for build in builds])
    strategy = Strategy(listed, builds=Builds(kinds, 2))
    search(strategy, times, 3)
    known = {kinds[i] for i in strategy.told}
    for index in (i for i in range(len(listed)) if kinds[i] in known):
        strategy.tell(index, times[index])
    assert len({kinds[i] for i in strategy.propose(16)} - known) <= 2


def test_first_points_are_far_apart():
    listed, _ = matrix_product()
    strategy = Strategy(listed)
    own = strategy.points.own[strategy.propose(START_POINTS)]
    gaps = [np.linalg.norm(a - b) for a, b in itertools.combinations(own, 2)]
    everywhere = strategy.points.own[np.random.default_rng(0).permutation(len(listed))[:START_POINTS]]
    assert min(gaps) > min(np.linalg.norm(a - b) for a, b in itertools.combinations(everywhere, 2))


# --- other machines ---


def test_a_machine_like_others_is_near_its_optimum_at_once_and_one_unlike_them_is_found_still():
    listed, times = matrix_product()
    slow = max(time for time in times if time is not None)
    others = elsewhere_log(listed, [list(zip(listed, times, strict=True))] * 2)
    assert best(times, search(Strategy(listed, others=others), times, 1)) == best(times, range(len(listed)))
    unlike = [None if time is None else slow - time + 1.0 for time in times]
    order = search(Strategy(listed, others=others), unlike, 60)
    assert best(unlike, order) <= 1.1 * best(unlike, range(len(listed)))
    assert best(unlike, order) < best(unlike, order[:PORTFOLIO])


def test_where_all_that_did_well_elsewhere_fails_the_next_are_no_more_of_the_same():
    listed = grid(tile=[8, 16, 32, 64, 128], threads=[32, 64, 128, 256, 512], local=[0, 1])
    big = [p["tile"] * p["threads"] > 4000 for p in listed]
    there = [1.0 / (p["tile"] * p["threads"]) ** 0.2 for p in listed]
    here = [None if bad else time for bad, time in zip(big, there, strict=True)]
    others = elsewhere_log(listed, [list(zip(listed, there, strict=True))])
    strategy = Strategy(listed, others=others)
    order = search(strategy, here, 8)
    assert here[order[0]] is None
    assert best(here, order) < math.inf


# --- as Optuna's sampler ---


def test_plain_configurations_are_searched_by_the_sampler_as_by_the_strategy():
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    listed, times = matrix_product()
    sampler = ListSampler(listed, seed=5, batches=Batches(1))
    study = optuna.create_study(sampler=sampler)
    order = []
    for _ in range(20):
        trial = study.ask(sampler.dimensions.distributions)
        order.append(sampler.dimensions.index(trial.params))
        value = times[order[-1]]
        study.tell(trial, value, state=optuna.trial.TrialState.FAIL if value is None else None)
    strategy = Strategy(listed, seed=5)
    assert set(order[:START_POINTS]) == set(search(strategy, times, START_POINTS))
    assert len(set(order)) == 20
