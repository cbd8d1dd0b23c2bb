"""What cannot win: the least work of a call, how it grows, and which teams are too small for it."""

import random

import pytest
from fake import FakeSpec, decode_ns, fake_machine, fake_variants

from advisor.records import Measurement
from advisor.search import bounds
from advisor.search.bounds import Work, bound_ns, grown, growth, hopeless, joined, most_growth, seen, twins
from advisor.search.space import SpaceOptions, Toolchain, space

SPEC = FakeSpec()
SMALL, LARGE = SPEC.problem(1024), SPEC.problem(16384)
CHOICES = space(fake_machine(cores=16), SPEC, fake_variants(), LARGE, SpaceOptions((Toolchain("gcc", "libgomp"),)))


def with_threads(count):
    return next(choice for choice in CHOICES if choice.team.threads == count)


def look(problem, threads, ns, status="ok"):
    return Measurement(problem, with_threads(threads), status, samples_ns=(ns,) * 5 if status == "ok" else ())


def test_the_least_thread_time_of_each_team_size_is_seen():
    found = seen(
        LARGE, [look(LARGE, 1, 900.0), look(LARGE, 1, 1000.0), look(LARGE, 8, 150.0), look(LARGE, 4, 1, "wrong")]
    )
    assert found.least == ((1, 900.0), (8, 1200.0))


def test_a_bound_needs_a_team_that_is_no_larger():
    work = Work(LARGE, ((4, 800.0), (16, 1600.0)))
    assert bound_ns(work, 8) == pytest.approx(bounds.SLACK * 800 / 8)
    assert bound_ns(work, 2) == 0.0
    assert bound_ns(Work(LARGE), 8) == 0.0


def test_a_smaller_team_may_be_hopeless_and_the_best_one_never_is():
    work = Work(LARGE, ((1, 1600.0),))
    assert hopeless(with_threads(1), work, 110.0)
    assert hopeless(with_threads(8), work, 110.0)
    assert not hopeless(with_threads(16), work, 110.0)


def test_work_grows_at_least_as_the_slower_of_traffic_and_arithmetic_and_never_shrinks_to_a_smaller_n():
    work = grown(Work(SMALL, ((1, 100.0),)), SPEC, LARGE)
    assert work.problem == LARGE
    assert work.least == ((1, pytest.approx(100.0 * growth(SPEC, SMALL, LARGE))),)
    assert 15 < growth(SPEC, SMALL, LARGE) <= most_growth(SPEC, SMALL, LARGE) <= 16.01
    assert grown(Work(LARGE, ((1, 100.0),)), SPEC, SMALL).least == ()
    assert joined(Work(LARGE, ((1, 5.0),)), Work(LARGE, ((1, 4.0), (2, 9.0)))).least == ((1, 4.0), (2, 9.0))


@pytest.mark.parametrize("n", [1024, 16384, 262144])
def test_nothing_near_the_best_is_skipped_by_what_a_first_search_sees_even_where_bandwidth_is_shared(n):
    """Eight threads take all bandwidth there, sixteen gain nothing: the work of sixteen alone would mislead."""
    problem, rng = SPEC.problem(n), random.Random(n)
    times = {choice: decode_ns(problem, choice, 16) for choice in CHOICES}
    best = min(times.values())
    near = [choice for choice, time in times.items() if time <= bounds.REACH * best]
    assert min(choice.team.threads for choice in near) <= 8
    for _ in range(30):
        some = [with_threads(16), *rng.sample(CHOICES, 24)]
        work = seen(problem, [Measurement(problem, c, "ok", samples_ns=(times[c],)) for c in some])
        assert not [choice for choice in near if hopeless(choice, work, best)]


def test_machines_with_several_kinds_of_cores_are_not_bounded():
    assert bounds.comparable(fake_machine())
    assert not bounds.comparable(fake_machine()._replace(core_classes=("strong", "weak")))


def test_twins_differ_in_the_process_part_alone():
    one = with_threads(16)
    found = twins(CHOICES, one)
    assert {(choice.build, choice.team) for choice in found} == {(one.build, one.team)}
    assert len({choice.process for choice in (one, *found)}) == len(found) + 1 == 4


def test_a_choice_of_a_device_says_nothing_of_the_work_of_a_call():
    """A small call is mostly its launch: grown with the traffic, it would leave nothing to look at at a larger n."""
    on_device = with_threads(1)._replace(team=None, process=None)
    found = seen(SMALL, [Measurement(SMALL, on_device, "ok", samples_ns=(5000.0,) * 5)])
    assert found == Work(SMALL)
    assert not hopeless(on_device, grown(found, SPEC, LARGE), 6000.0)
