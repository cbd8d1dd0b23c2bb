"""The cost model: traffic, arithmetic and fork-join of a made-up signature."""

import pytest
from elsewhere_fixtures import SPEC, machine
from signatures import signature

from advisor.records import Caches
from advisor.search.costs import cheapest, teams
from advisor.signature.keep import with_signature


def here(l3=1 << 25, **more):
    found = machine(4)._replace(caches=Caches(32768, 524288, l3))
    return with_signature(found, signature(**more))


def test_small_calls_want_one_thread_and_large_ones_all():
    found = [cheapest(here(), SPEC, SPEC.problem(n)).team.threads for n in (8, 1 << 20)]
    assert found == [1, 4]


def test_a_time_is_traffic_or_arithmetic_and_fork_join():
    problem = SPEC.problem(1 << 20)
    moved = (SPEC.elements(problem).read + SPEC.elements(problem).written) * 4
    (one, four) = teams(signature(), here(), SPEC, problem)
    assert one.ns == pytest.approx(moved / 10.0 + 50.0)
    assert four.ns == pytest.approx(moved / 20.0 + 2000.0)
    slow = teams(signature(gflops_a_thread=0.001), here(), SPEC, problem)
    assert slow[0].ns == pytest.approx(SPEC.flops(problem) / 0.001 + 50.0)


def test_what_fits_the_last_level_cache_is_read_at_its_rate():
    problem = SPEC.problem(1 << 10)
    inside, outside = (teams(signature(l3=True), here(l3=size), SPEC, problem)[0].ns for size in (1 << 25, 1 << 10))
    assert inside < outside


def test_without_a_signature_nothing_is_modelled():
    assert cheapest(machine(4), SPEC, SPEC.problem(64)) is None
    assert cheapest(machine(4)._replace(extra=(("signature", {"odd": 1}),)), SPEC, SPEC.problem(64)) is None
    assert cheapest(here(joins=False), SPEC, SPEC.problem(64)) is None
