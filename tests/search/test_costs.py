"""The cost model: traffic, arithmetic and fork-join of a made-up signature."""

import pytest
from elsewhere_fixtures import SPEC, machine
from signatures import signature

from advisor.records import Caches
from advisor.search.costs import cheapest, teams
from advisor.search.traits import distance, spot_of
from advisor.signature.keep import with_signature


def here(size=1 << 25, **more):
    found = machine(4)._replace(caches=Caches(32768, 524288, size))
    return with_signature(found, signature(**more))


def test_small_calls_want_one_thread_and_large_ones_all():
    found = [cheapest(here(), SPEC, SPEC.problem(n)).team.threads for n in (8, 1 << 20)]
    assert found == [1, 4]


def test_a_time_is_traffic_or_arithmetic_and_fork_join():
    problem = SPEC.problem(1 << 20)
    moved = (SPEC.elements(problem).read + SPEC.elements(problem).written) * 4
    (one, four) = teams(here(), SPEC, problem)
    assert one.ns == pytest.approx(moved / 10.0 + 50.0)
    assert four.ns == pytest.approx(moved / 20.0 + 2000.0)
    slow = teams(here(gflops_a_thread=0.001), SPEC, problem)
    assert slow[0].ns == pytest.approx(SPEC.flops(problem) / 0.001 + 50.0)


def test_what_fits_the_last_level_cache_is_read_at_its_rate():
    problem = SPEC.problem(1 << 10)
    inside, outside = (teams(here(size, l3=True), SPEC, problem)[0].ns for size in (1 << 25, 1 << 10))
    assert inside < outside


def test_without_a_signature_nothing_is_modelled():
    assert cheapest(machine(4), SPEC, SPEC.problem(64)) is None
    assert cheapest(machine(4)._replace(extra=(("signature", {"odd": 1}),)), SPEC, SPEC.problem(64)) is None
    assert cheapest(here(joins=False), SPEC, SPEC.problem(64)) is None


def test_measured_rates_tell_machines_apart():
    slow, fast = (spot_of(here(gflops_a_thread=rate)).traits for rate in (100.0, 400.0))
    assert (slow["bandwidth"], slow["arithmetic"], slow["fork-join"]) == (20.0, 400.0, 2000.0)
    assert distance(slow, fast) == 2.0
    assert distance(slow, spot_of(machine(4)).traits) == distance(fast, spot_of(machine(4)).traits)


@pytest.mark.parametrize("odd", [{"read": 1}, {"read": [{"level": "memory"}]}, {"fork_join": [{"threads": "x"}]}, [1]])
def test_an_odd_signature_says_nothing(odd):
    found = here()._replace(extra=(("signature", odd),))
    assert "bandwidth" not in spot_of(found).traits
    assert cheapest(found, SPEC, SPEC.problem(64)) is None
