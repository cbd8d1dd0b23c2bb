"""Seeds from other machines: fitted to this one, and in a quick search the least sure first."""

import math

import pytest
from elsewhere_fixtures import GROUP, SPEC, known, machine, options, timed
from fake import FakeExecutor, quiet

from advisor.records import pairs
from advisor.search import tune
from advisor.search.carry import MOST, MOST_QUICK, in_order, taken_over, unsure
from advisor.search.log import Log
from advisor.search.portable import Portable
from advisor.search.request import Options, Request
from advisor.search.rungs import Asked, Guess
from advisor.search.space import space
from advisor.search.traits import spot_of

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


def three(**logs):
    """Machines that measured blocks at these logs over their best; one that did not know a block has None."""
    times = [{split(16, 16): 100.0} for _ in range(3)]
    for block, own in logs.items():
        for found, log in zip(times, own, strict=True):
            found.update({} if log is None else {split(int(block[1:]), 16): 100.0 * math.exp(log)})
    return [known(name, machine(16), {1024: found}) for name, found in zip("abc", times, strict=True)]


@pytest.mark.parametrize(
    ("logs", "order"),
    [
        ({"b32": (0.3, 0.3, 0.3), "b64": (0.1, 0.3, 0.5)}, [16, 64, 32]),  # equal means: the one they disagree about
        ({"b32": (0.3, 0.3, 0.3), "b64": (0.9, 0.9, 1.2)}, [16, 32, 64]),  # what is slow on all is no open question
        ({"b32": (0.2, 0.2, 0.2), "b64": (0.05, None, None)}, [16, 64, 32]),  # what a single machine knows is open
    ],
)
def test_looks_go_to_what_may_be_best_and_machines_are_least_sure_of(logs, order):
    asked = Asked(spot_of(HERE), lambda what: True, GROUP, 1024)
    assert [dict(one.what.knobs)["ADV_BLOCK"] for one in unsure(three(**logs), asked)] == order


def test_a_quick_search_spends_the_looks_that_the_ways_leave():
    """The ways agree on one choice; the others that were measured elsewhere follow, each once."""
    found = taken_over(HERE, PROBLEM, CHOICES, quick=True, known=three(b32=(0.3, 0.3, 0.3), b64=(0.1, 0.3, 0.5)))
    assert blocks(found) == [16, 64, 32]
    assert len(taken_over(HERE, PROBLEM, CHOICES, known=three(b32=(0.3, 0.3, 0.3)))) == 1


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
