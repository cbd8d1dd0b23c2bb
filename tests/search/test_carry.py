"""Seeds from other machines: fitted to this one, and in a quick search the least sure first."""

import pytest
from elsewhere_fixtures import GROUP, SPEC, known, machine, options, timed
from fake import FakeExecutor, quiet

from advisor.records import pairs
from advisor.search import tune
from advisor.search.carry import MOST, MOST_QUICK, in_order, taken_over
from advisor.search.log import Log
from advisor.search.portable import Portable
from advisor.search.request import Options, Request
from advisor.search.rungs import Guess
from advisor.search.space import space

HERE = machine(4)
PROBLEM = SPEC.problem(1024)
CHOICES = space(HERE, SPEC, options.variants(wide=("avx512f",)), PROBLEM, options.space)


def split(block, threads):
    return timed("split", threads, knobs=pairs({"ADV_BLOCK": block, "ADV_UNROLL": 4}))


def two():
    """Machines that agree on block 64, and not on 16 and 32."""
    one = {split(64, 16): 110.0, split(16, 16): 100.0, split(32, 16): 500.0}
    other = {split(64, 16): 110.0, split(16, 16): 500.0, split(32, 16): 100.0}
    return [known(name, machine(16), {1024: times}) for name, times in (("a", one), ("b", other))]


def blocks(choices):
    return [dict(choice.build.knobs).get("ADV_BLOCK") for choice in choices]


def test_a_choice_becomes_a_listed_one_with_the_same_share_of_the_machine():
    (one, *_) = taken_over(HERE, PROBLEM, CHOICES, known=[known("a", machine(16), {1024: {split(32, 8): 100.0}})])
    assert one in CHOICES
    assert (one.build.knobs, one.team.threads) == (pairs({"ADV_BLOCK": 32, "ADV_UNROLL": 4}), 2)


def test_what_cannot_run_here_and_what_nobody_knows_are_left_out():
    wide = known("a", machine(16), {1024: {timed("wide", 16): 100.0}})
    assert taken_over(HERE, PROBLEM, CHOICES, known=[wide]) == ()
    assert taken_over(HERE, PROBLEM, CHOICES, known=[]) == ()
    assert taken_over(HERE, SPEC.problem(1 << 20), CHOICES, known=two()) == ()


def test_another_shape_counts_where_none_has_this_one():
    found = known("a", machine(16), {1024: {split(32, 16): 100.0}})
    other = (*GROUP[:2], SPEC.problem(1, heads=8).shape)
    found = found._replace(cells={other: found.cells[GROUP]})
    assert blocks(taken_over(HERE, PROBLEM, CHOICES, known=[found])) == [32]


@pytest.mark.parametrize(("quick", "most"), [(False, MOST), (True, MOST_QUICK)])
def test_a_search_takes_few(quick, most):
    assert 1 <= len(taken_over(HERE, PROBLEM, CHOICES, quick=quick, known=two())) <= most


def test_a_quick_search_looks_first_at_what_machines_disagree_about():
    spreads = {"first": 0.2, "sure": 0.0, "open": 0.5, "alone": float("inf")}
    guesses = [Guess(Portable(name, (), 1), None, (), spread) for name, spread in spreads.items()]
    again = [*guesses, guesses[0]]
    assert [one.what.variant for one in in_order(again, True)] == ["first", "alone", "open", "sure"]
    assert [one.what.variant for one in in_order(again, False)] == ["first", "sure", "open", "alone"]


def test_both_ways_are_seeds_where_they_disagree():
    assert set(blocks(taken_over(HERE, PROBLEM, CHOICES, quick=True, known=two()))) >= {16, 64}


@pytest.mark.parametrize(("quick", "asked"), [(False, [256]), (True, [256, 4096])])
def test_a_quick_tuning_asks_other_machines_at_every_n(monkeypatch, tmp_path, quick, asked):
    sizes = []

    def recorded(machine, problem, choices, **_):
        sizes.append(problem.n)
        return ()

    monkeypatch.setattr(tune, "taken_over", recorded)
    problems = tuple(SPEC.problem(n) for n in (256, 4096))
    wanted = Request(HERE, SPEC, options.variants(), problems, Options(options.space, quick=quick), "s1")
    fake = FakeExecutor(lambda p, c: 1000.0 + 10.0 * len(repr(c)), quiet)
    with Log(str(tmp_path / "m.jsonl")) as log:
        tune.tune(wanted, fake, log, clock=fake.clock)
    assert sizes == asked
