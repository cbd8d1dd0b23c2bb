"""Who races: the best-looking, the DEFAULT, the believed best, and the best of each part that is near."""

from fake import FakeSpec, fake_machine, fake_variants

from advisor.records import Measurement
from advisor.search.finalists import REACH, finalists
from advisor.search.plan import LEAST_FINALISTS
from advisor.search.space import SpaceOptions, Toolchain, space

SPEC = FakeSpec()
PROBLEM = SPEC.problem(4096)
SPACE = SpaceOptions((Toolchain("gcc", "libgomp"),))
CHOICES = [
    c for c in space(fake_machine(cores=8), SPEC, fake_variants(), PROBLEM, SPACE) if c.process.wait_policy == "default"
]


def some(variant, threads, count):
    return [c for c in CHOICES if (c.build.variant, c.team.threads) == (variant, threads)][:count]


def look(choice, ns):
    return Measurement(PROBLEM, choice, "ok", samples_ns=(ns,) * 5)


def chosen(looks, default, most=12.0):
    order = [one.choice for one in looks]
    return finalists(looks, default, order.index, most)


def test_ten_good_looks_of_one_team_leave_a_place_for_another_team_and_another_variant():
    crowd = some("split", 8, 10)
    (other_team,), (other_variant,) = some("split", 4, 1), some("grouped", 8, 1)
    looks = [look(choice, 100.0 + k) for k, choice in enumerate(crowd)]
    looks += [look(other_team, 100.0 * REACH - 1), look(other_variant, 100.0 * REACH - 0.5)]
    found = chosen(looks, crowd[0])
    assert {other_team, other_variant} <= set(found)
    assert found[0] == crowd[0]


def test_what_is_far_behind_has_no_place_for_its_part_alone():
    crowd = some("split", 8, 10)
    (other_team,) = some("split", 4, 1)
    looks = [*(look(choice, 100.0 + k) for k, choice in enumerate(crowd)), look(other_team, 100.0 * REACH + 1)]
    assert other_team not in chosen(looks, crowd[0])


def test_few_places_go_to_the_best_the_default_and_the_believed_best():
    crowd = some("split", 8, 6)
    looks = [look(choice, 100.0 + k) for k, choice in enumerate(crowd)]
    found = finalists(looks, crowd[4], lambda choice: -crowd.index(choice), 0.0)
    assert found == (crowd[0], crowd[4], crowd[5])
    assert len(found) == LEAST_FINALISTS


def test_nobody_races_where_nothing_ran():
    assert finalists([Measurement(PROBLEM, CHOICES[0], "crashed")], CHOICES[0], lambda _: 0.0, 9.0) == ()
