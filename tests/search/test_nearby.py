"""What is looked at beside the best before the race: one part of it changed, all others kept."""

import pytest
from fake import FakeSpec, fake_machine, fake_variants

from advisor.search import nearby
from advisor.search.space import SpaceOptions, Toolchain, space

SPEC = FakeSpec()
MACHINE = fake_machine(sockets=2, numa=2, cores=4)
CHOICES = space(MACHINE, SPEC, fake_variants(), SPEC.problem(4096), SpaceOptions((Toolchain("gcc", "libgomp"),)))
SPREAD = "transpose smt core l3 numa socket"


def one(variant="split", threads=8, placement="", wait="default", block=64):
    return next(
        c
        for c in CHOICES
        if (c.build.variant, c.team.threads, c.team.placement) == (variant, threads, placement)
        and (c.process.wait_policy, c.process.spin) == (wait, None)
        and dict(c.build.knobs).get("ADV_BLOCK", block) == block
    )


def parts(choice):
    return choice.build, choice.team.threads, choice.team.placement, choice.process


def differing(choice, best):
    """The parts in which a choice differs from the best one, by position in `parts`."""
    return [k for k, (a, b) in enumerate(zip(parts(choice), parts(best), strict=True)) if a != b]


def found(order, tried=None):
    return nearby.beside(CHOICES, order, set(order if tried is None else tried))


def test_each_look_changes_one_part_of_the_best_and_none_was_tried():
    best = one(wait="active")
    order = [best, one(threads=1), one("grouped", threads=1), one("naive", threads=2)]
    looks = found(order)
    assert len(looks) == len(set(looks)) == nearby.MOST
    assert not set(looks) & set(order)
    assert all(differing(choice, best) in ([0], [1], [2], [3], [1, 2]) for choice in looks)  # build, team or waiting
    assert {tuple(differing(choice, best)) for choice in looks} >= {(0,), (1,), (3,)}


def test_every_other_variant_is_tried_on_the_best_ones_team_in_the_build_that_looked_best():
    best = one(wait="active")
    order = [best, one("grouped", threads=1, block=32), one("grouped", threads=1, block=16), one("naive", threads=2)]
    grouped, naive = found(order)[:2] if found(order)[0].build.variant == "grouped" else found(order)[1::-1]
    assert (naive.build.variant, grouped.build) == ("naive", order[1].build)
    assert {(c.team, c.process) for c in (naive, grouped)} == {(best.team, best.process)}


def test_a_variant_that_was_tried_there_or_never_ran_is_not_tried_again():
    best, there, broken = one(), one("grouped", block=16), one("naive", threads=1)
    looks = found([best, there], {best, there, broken})
    assert {choice.build.variant for choice in looks} == {"split"}


@pytest.mark.parametrize(("threads", "wanted"), [(8, {4, 16}), (1, {2}), (16, {8}), (15, {8, 16})])
def test_the_counts_nearest_to_half_and_to_twice_the_threads(threads, wanted):
    listed = {c.team.threads for c in CHOICES}
    best = next(c for c in CHOICES if c.team.threads == threads)
    looks = {c.team.threads for c in found([best]) if c.build == best.build} - {threads}
    assert looks == {count for count in wanted if count in listed}


def test_other_threads_are_placed_alike_where_that_is_listed_and_half_of_them_also_spread():
    best = one(threads=4, placement=SPREAD)
    looks = {(c.team.threads, c.team.placement) for c in found([best]) if c.build == best.build}
    assert {(2, SPREAD), (8, SPREAD)} <= looks
    last = [c.team.placement for c in CHOICES if c.team.threads == 8][-1]
    assert (8, last) in {(c.team.threads, c.team.placement) for c in found([one(threads=16)])}


def test_nothing_is_looked_at_where_nothing_ran_or_all_was_tried():
    assert found([]) == ()
    assert nearby.beside(CHOICES, [one()], set(CHOICES)) == ()


def test_of_few_looks_a_quarter_is_kept_and_of_many_as_many_as_a_pass_takes():
    assert [nearby.reserved(most) for most in (4, 24, 300)] == [1, 6, nearby.MOST]
